//! Both sides do the same if the server cannot tell them apart: its profiler has seen equal commands from both.

use anyhow::{Result, ensure};
use futures_util::TryStreamExt;
use mobimir_core::time::{Clock, SystemClock};
use mobimir_lab::Mongo;
use mongodb::{
    Client, Database,
    bson::{Bson, Document, doc},
};

use super::{DATABASE, bare::Bare, port::Port};
use crate::sides::{Operation, Shop, Side, new_cart};

/// What both sides call themselves, so that nobody else's commands are looked at.
pub(super) const APP_NAME: &str = "mobimir";
/// Numbers from here on are times or versions.
const TIMES_FROM: i64 = 1_000_000_000;

pub(super) async fn check(mongo: &Mongo, port: &Port, bare: &Bare, shop: &Shop) -> Result<()> {
    let database = Client::with_uri_str(mongo.uri()).await?.database(DATABASE);
    for operation in Operation::ALL {
        let (of_port, of_bare) =
            (seen(&database, operation, port, shop).await?, seen(&database, operation, bare, shop).await?);
        ensure!(!of_port.is_empty(), "the server has seen nothing of {}", operation.name());
        ensure!(
            of_port == of_bare,
            "{} is not the same on both sides\nthe port sends {of_port:#?}\nthe bare side {of_bare:#?}",
            operation.name()
        );
    }
    Ok(())
}

/// What the server sees of an operation.
async fn seen(
    database: &Database,
    operation: Operation,
    side: &impl Side,
    shop: &Shop,
) -> Result<Vec<String>> {
    let carts = [new_cart(SystemClock.now())];
    database.run_command(doc! { "profile": 2 }).await?;
    operation.carry_out(side, shop, &carts, 0).await?;
    database.run_command(doc! { "profile": 0 }).await?;
    let profiled = database.collection::<Document>("system.profile");
    let of_side: Vec<Document> = profiled.find(doc! { "appName": APP_NAME }).await?.try_collect().await?;
    profiled.drop().await?;
    let mut commands: Vec<String> = of_side
        .iter()
        .map(|seen| {
            let name = |field: &str| seen.get_str(field).unwrap_or_default().to_owned();
            format!("{} {} {}", name("op"), name("ns"), shape("command", seen.get("command")))
        })
        .collect();
    // Some are sent at the same time.
    commands.sort();
    Ok(commands)
}

/// A command without what differs each time: ids, times and numbers of requests.
fn shape(name: &str, value: Option<&Bson>) -> String {
    let differs = name == "txnNumber";
    match value {
        None => "nothing".to_owned(),
        Some(Bson::Document(document)) => {
            let fields = document.iter().filter(|(name, _)| *name != "$clusterTime");
            let fields = fields.map(|(name, value)| format!("{name}: {}", shape(name, Some(value))));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Some(Bson::Array(values)) => {
            let values = values.iter().map(|value| shape(name, Some(value)));
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        }
        Some(Bson::Int64(number)) if !differs && *number < TIMES_FROM => number.to_string(),
        Some(plain @ (Bson::String(_) | Bson::Int32(_) | Bson::Boolean(_))) => plain.to_string(),
        Some(other) => format!("a {:?}", other.element_type()),
    }
}
