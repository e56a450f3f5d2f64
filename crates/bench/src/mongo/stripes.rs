//! Sales of one product that everybody wants: from one document, and from stripes.

use std::sync::Arc;

use anyhow::{Result, ensure};
use mobimir_core::{
    ports::ProductStore,
    time::{Clock, SystemClock},
};

use super::{catalogue, port::Port};
use crate::{
    figures::{Figures, median, show_rounds},
    progress,
    sides::{Operation, Pace, Shop, alternately, round},
};

const NAME: &str = "mongo_stripes_sales";
/// Sales a second from stripes, to those from one document.
const BAR: f64 = 2.0;
const STRIPES: u16 = 16;
const BUYERS: usize = 64;

pub(super) async fn measure(port: &Arc<Port>, shop: &Shop, pace: Pace, figures: &mut Figures) -> Result<()> {
    progress(NAME);
    let (striped, whole) = (hot(port, shop, Some(STRIPES)).await?, hot(port, shop, None).await?);
    let sales = async |shop| round(port, shop, Operation::ProductSale, BUYERS, pace.round).await;
    sales(&striped).await?;
    sales(&whole).await?;
    let (striped, whole) =
        alternately(pace.rounds, async || sales(&striped).await, async || sales(&whole).await).await?;
    let ratios: Vec<f64> =
        striped.iter().zip(&whole).map(|(striped, whole)| striped.per_second / whole.per_second).collect();
    show_rounds(NAME, &ratios);
    figures.at_least(NAME, median(&ratios), "x", BAR);
    for (stock, done) in [("striped", striped), ("whole", whole)] {
        let per_second: Vec<f64> = done.iter().map(|done| done.per_second).collect();
        figures.info(&format!("{NAME}_{stock}_rps"), median(&per_second), "sales/s");
    }
    Ok(())
}

/// A shop with one product.
async fn hot(port: &Port, shop: &Shop, stripes: Option<u16>) -> Result<Arc<Shop>> {
    let product = catalogue::product(shop.zone, 0)?;
    let id = product.id;
    ensure!(port.products.insert(vec![product]).await? == 1, "a product was there before");
    if let Some(count) = stripes {
        ensure!(port.products.stripe(id, count, SystemClock.now()).await?, "a product could not be split");
    }
    let mut shop = shop.clone();
    shop.products = vec![id];
    Ok(Arc::new(shop))
}
