//! Commands for one server, whatever its state.

use std::{
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use mongodb::{
    Client,
    bson::Document,
    error::{Error, ErrorKind},
    options::{ClientOptions, ServerAddress},
};

use super::server::Server;
use crate::LabError;

/// Tries each server by itself. Not for a thread that belongs to an async runtime alone: the work is done in another one.
pub(crate) fn ask_all(
    servers: &[Server],
    database: &str,
    command: &Document,
    bound: Duration,
) -> Vec<Result<Document, LabError>> {
    let answers = || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("cannot make a runtime: {error}"),
        };
        runtime.block_on(join_all(servers.iter().map(|server| answer(server, database, command, bound))))
    };
    thread::scope(|scope| match scope.spawn(answers).join() {
        Ok(answers) => answers,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

pub(crate) fn ask(
    server: &Server,
    database: &str,
    command: &Document,
    bound: Duration,
) -> Result<Document, LabError> {
    let mut answers = ask_all(std::slice::from_ref(server), database, command, bound);
    answers.pop().unwrap_or_else(|| Err(LabError::NoMember(server.id)))
}

async fn answer(
    server: &Server,
    database: &str,
    command: &Document,
    bound: Duration,
) -> Result<Document, LabError> {
    let started = Instant::now();
    let name = || command.keys().next().cloned().unwrap_or_default();
    let silent = || LabError::Silent { who: server.name.clone(), command: name(), waited: started.elapsed() };
    let mut options = ClientOptions::default();
    options.hosts = vec![ServerAddress::Tcp { host: server.ip().to_string(), port: Some(server.port) }];
    options.direct_connection = Some(true);
    options.server_selection_timeout = Some(bound);
    options.connect_timeout = Some(bound);
    options.retry_reads = Some(false);
    let told = async { Client::with_options(options)?.database(database).run_command(command.clone()).await };
    match tokio::time::timeout(bound, told).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if matches!(*error.kind, ErrorKind::ServerSelection { .. }) => Err(silent()),
        Ok(Err(error)) => {
            Err(LabError::Command { who: server.name.clone(), command: name(), source: Box::new(error) })
        }
        Err(_) => Err(silent()),
    }
}

/// The number by which the server names what went wrong.
pub(crate) fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}
