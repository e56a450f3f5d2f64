//! Runs a command with a ring of Cassandra and a replica set of MongoDB that all tests in it share, and ends them after it.
//!
//! `with-test-servers COMMAND [ARGUMENT ...]`; see [`mobimir_lab::SharedServers`]. Its exit code is the command's.

use std::{
    mem,
    process::{Command, ExitCode},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use mobimir_lab::{SharedServers, Step};

/// Prints what is begun and what is done, and not every file that is fetched in between.
fn shown() -> impl Fn(Step) + Sync {
    let last = Mutex::new(None);
    move |step| {
        let kind = Some(mem::discriminant(&step));
        let before = mem::replace(&mut *last.lock().unwrap_or_else(PoisonError::into_inner), kind);
        if before != kind || step.is_done() {
            eprintln!("test servers: {step}");
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: with-test-servers COMMAND [ARGUMENT ...]");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let servers = match SharedServers::start(&shown()) {
        Ok(servers) => servers,
        Err(error) => {
            eprintln!("test servers: {error}");
            return ExitCode::FAILURE;
        }
    };
    eprintln!("test servers: ready after {:.0} s", started.elapsed().as_secs_f64());
    match Command::new(&program).args(arguments).envs(servers.variables()).status() {
        Ok(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            eprintln!("cannot run {}: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}
