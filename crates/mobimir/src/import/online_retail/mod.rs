//! Imports the "Online Retail" data of the UCI Machine Learning Repository: every invoice line of a gift shop.
//!
//! A stock code becomes a product, a customer a user that nobody can log in as, an invoice an order in the past. All
//! ids follow from the file, and everything is inserted only where it is not there yet: an import that was broken
//! off is finished by starting it again, and a second one changes nothing.
//!
//! The books balance (STK-1): of every product and zone as much was received as was sold to orders that were not
//! cancelled, plus what is available now. A product that is there already keeps its books, so a second file with
//! further invoices of the same goods adds orders but no sold units. An order's history begins with the status that
//! it has; the file knows none of the earlier ones.

mod category;
mod line;
mod orders;
mod parse;
mod summary;
mod survey;
#[cfg(feature = "load")]
mod trades;

use std::{
    io::{Read, Seek, SeekFrom},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use mobimir_core::{order::Order, ports::Stores, product::Product, time::Timestamp, user::User, zone::Zone};
use tokio::task::JoinSet;

use self::{
    orders::{Assembly, FileChanged},
    parse::BytesRead,
    survey::Survey,
};

pub(crate) use self::summary::Summary;
#[cfg(feature = "load")]
pub(crate) use self::trades::trades;

const PRODUCTS_PER_BATCH: usize = 500;
const ORDERS_PER_BATCH: usize = 500;
/// Users are inserted one by one, but so many at the same time.
const USERS_AT_ONCE_MAX: usize = 64;
const LINES_PER_REPORT: u64 = 1_000;

pub(crate) struct Options {
    /// Where the shop keeps stock. Customers are spread over them.
    pub(crate) zones: Vec<Zone>,
    /// Invoices of a later date are refused.
    pub(crate) now: Timestamp,
}

/// How far the import is. The file is read twice, so `bytes_total` is twice its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) stage: &'static str,
    pub(crate) bytes: u64,
    pub(crate) bytes_total: u64,
}

/// Reads the file and writes what is not there yet.
pub(crate) async fn load<R: Read + Seek + Send>(
    stores: &Stores,
    mut file: R,
    options: &Options,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Summary> {
    ensure!(!options.zones.is_empty(), "expected at least one zone");
    let started = Instant::now();
    let bytes = BytesRead::default();
    let bytes_total = 2 * file.seek(SeekFrom::End(0)).context("the file cannot be measured")?;
    let mut report = |stage| progress(Progress { stage, bytes: bytes.get().min(bytes_total), bytes_total });
    let mut summary = Summary::default();

    let mut survey = Survey::new(&options.zones);
    let mut lines = parse::lines(&mut file, &bytes, options.now)?;
    for line in lines.by_ref() {
        match line.with_context(|| format!("the file cannot be read beyond line {}", summary.lines + 1))? {
            Ok(line) => {
                summary.count(&line);
                survey.add(line);
            }
            Err(bad) => summary.count_bad(bad),
        }
        if summary.lines.is_multiple_of(LINES_PER_REPORT) {
            report("reading");
        }
    }
    summary.notes.fields_recoded = lines.recoded();
    summary.invoices = survey.invoices() as u64;
    drop(lines);

    report("writing products and users");
    let products = survey.products()?;
    summary.products.in_file = products.len() as u64;
    summary.products.new = insert_products(stores, products.values()).await?;
    let users = survey.users()?;
    summary.users.in_file = users.len() as u64;
    summary.users.new = insert_users(stores, users).await?;

    let mut assembly = Assembly::new(&survey, &products);
    let mut batch = Vec::with_capacity(ORDERS_PER_BATCH);
    let mut read = 0_u64;
    for line in parse::lines(&mut file, &bytes, options.now)? {
        if let Ok(line) = line.context("the file cannot be read a second time")? {
            batch.extend(assembly.add(line).map_err(changed)?);
        }
        if batch.len() >= ORDERS_PER_BATCH {
            summary.orders.new += insert_orders(stores, &mut batch).await?;
        }
        read += 1;
        if read.is_multiple_of(LINES_PER_REPORT) {
            report("writing orders");
        }
    }
    summary.orders.new += insert_orders(stores, &mut batch).await?;
    summary.count_orders(assembly.finish().map_err(changed)?);
    report("done");
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(summary)
}

fn changed(_: FileChanged) -> anyhow::Error {
    anyhow::anyhow!("the file was changed while it was read; start the import again")
}

async fn insert_products(stores: &Stores, products: impl Iterator<Item = &Product> + Send) -> Result<u64> {
    let mut new = 0;
    let mut batch = Vec::with_capacity(PRODUCTS_PER_BATCH);
    for product in products {
        batch.push(product.clone());
        if batch.len() == PRODUCTS_PER_BATCH {
            new += stores.products.insert(std::mem::take(&mut batch)).await? as u64;
        }
    }
    if !batch.is_empty() {
        new += stores.products.insert(batch).await? as u64;
    }
    Ok(new)
}

async fn insert_users(stores: &Stores, users: Vec<User>) -> Result<u64> {
    let mut new = 0;
    let mut running = JoinSet::new();
    for user in users {
        if running.len() >= USERS_AT_ONCE_MAX
            && let Some(inserted) = running.join_next().await
        {
            new += u64::from(inserted??);
        }
        let store = stores.users.clone();
        running.spawn(async move { store.insert(user).await });
    }
    while let Some(inserted) = running.join_next().await {
        new += u64::from(inserted??);
    }
    Ok(new)
}

async fn insert_orders(stores: &Stores, batch: &mut Vec<Order>) -> Result<u64> {
    if batch.is_empty() {
        return Ok(0);
    }
    Ok(stores.orders.insert(std::mem::take(batch)).await? as u64)
}

#[cfg(test)]
mod tests;
