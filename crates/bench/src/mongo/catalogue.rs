//! The products that are read and sold.

use anyhow::{Context, Result, ensure};
use mobimir_core::{
    id::{self, ProductId},
    money::Money,
    ports::ProductStore,
    product::{Attribute, Product, STOCK_MAX},
    time::{Clock, SystemClock},
    zone::Zone,
};
use mobimir_mongodb::MongoProducts;

use super::{
    bare::Bare,
    port::{Port, first_page},
};
use crate::sides::{self, Shop, Side};

const CATEGORIES: usize = 20;
const PRODUCTS: usize = 2_000;

/// Inserts products, and tells the shop of them.
pub(super) async fn fill(products: &MongoProducts, shop: &mut Shop) -> Result<()> {
    shop.categories = (0..CATEGORIES).map(|number| format!("Категория {number}")).collect();
    let made = (0..PRODUCTS).map(|number| product(shop.zone, number)).collect::<Result<Vec<_>>>()?;
    shop.products = made.iter().map(|product| product.id).collect();
    ensure!(products.insert(made).await? == PRODUCTS, "a product was there before");
    Ok(())
}

/// With some attributes, in two zones, and enough of it for every round.
pub(super) fn product(zone: Zone, number: usize) -> Result<Product> {
    let now = SystemClock.now();
    let attributes = [
        ("brand".to_owned(), Attribute::Text("Звезда".to_owned())),
        ("memory_gb".to_owned(), Attribute::Integer(256)),
        ("screen_inches".to_owned(), Attribute::Decimal(6.1)),
        ("waterproof".to_owned(), Attribute::Flag(true)),
    ];
    let stock = [(zone, STOCK_MAX), (Zone::parse("SPB")?, STOCK_MAX)];
    Ok(Product::new(
        ProductId(id::fresh(now)),
        format!("Смартфон «Звезда» {number}"),
        format!("Категория {}", number % CATEGORIES),
        Money::from_kopecks(1_000_000 + number as i128 * 7_919 % 1_000_000),
        attributes.into(),
        stock.into(),
        now,
    )?)
}

/// Each side sees what the other has sold, and both the same page.
pub(super) async fn check_agreement(port: &Port, bare: &Bare, shop: &Shop) -> Result<()> {
    let (id, now) = (shop.products[0], SystemClock.now());
    bare.sell(id, sides::sale(shop.zone, now), now).await?;
    port.sell(id, sides::sale(shop.zone, now), now).await?;
    let product = port.products.get(id).await?.context("the port does not find a product")?;
    let sold = product.stock.get(&shop.zone).map(|stock| stock.sold);
    ensure!(
        sold == Some(2) && product.holds.is_empty() && product.books_balance(),
        "the sales left something else: {product:?}"
    );
    ensure!(bare.get_product(id).await?, "the driver does not find a product");

    let category = &shop.categories[0];
    let page = port.products.list(first_page(category)).await?;
    let ids: Vec<ProductId> = page.items.iter().map(|product| product.id).collect();
    ensure!(bare.page(category).await? == ids, "the page is another");
    Ok(())
}
