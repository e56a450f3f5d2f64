//! Sales of one product that everybody wants: from one document, and from stripes; beside them, of products nobody else wants.

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
    sides::{Operation, Pace, Shop, round},
};

const NAME: &str = "mongo_stripes_sales";
/// Sales a second from stripes, to those from one document.
const BAR: f64 = 2.0;
/// Sales a second from stripes, to those of products that nobody else wants. What these reach is all that client, server and
/// disk can do; where it is less than twice the sales from one document, the first bar is out of any document's reach.
const OF_APART_BAR: f64 = 0.9;
const STRIPES: u16 = 16;
const BUYERS: usize = 64;

pub(super) async fn measure(port: &Arc<Port>, shop: &Shop, pace: Pace, figures: &mut Figures) -> Result<()> {
    progress(NAME);
    let apart = Arc::new(shop.clone());
    let sides = [hot(port, shop, Some(STRIPES)).await?, hot(port, shop, None).await?, apart];
    let sales = async |shop| round(port, shop, Operation::ProductSale, BUYERS, pace.round).await;
    for shop in &sides {
        sales(shop).await?;
    }
    let mut done = [const { Vec::new() }; 3];
    for number in 0..pace.rounds {
        for turn in 0..sides.len() {
            // Each is first, second and last in turn.
            let at = (number + turn) % sides.len();
            done[at].push(sales(&sides[at]).await?.per_second);
        }
    }
    let [striped, whole, apart] = done;
    let ratio = |of: &[f64], to: &[f64]| -> Vec<f64> { of.iter().zip(to).map(|(of, to)| of / to).collect() };
    let (gain, of_apart, room) = (ratio(&striped, &whole), ratio(&striped, &apart), ratio(&apart, &whole));
    show_rounds(NAME, &gain);
    show_rounds(&format!("{NAME}_of_apart"), &of_apart);
    // What cannot be gained here is not asked for; that all there is was gained is asked for instead.
    let bar = BAR.min((OF_APART_BAR * median(&room) * 100.0).round() / 100.0);
    figures.at_least(NAME, median(&gain), "x", bar);
    figures.at_least(&format!("{NAME}_of_apart"), median(&of_apart), "x", OF_APART_BAR);
    for (stock, per_second) in [("striped", striped), ("whole", whole), ("apart", apart)] {
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
