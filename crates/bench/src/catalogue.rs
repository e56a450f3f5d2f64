//! What is in the shop's catalogue, as its API tells.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    load::{Load, Request, Until},
    server::Server,
};

#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) id: String,
    pub(crate) category: String,
    pub(crate) price: String,
    /// Units in the first zone.
    pub(crate) available: u64,
}

pub(crate) const ZONE: &str = "MSK";

/// All products, by category and rising price.
pub(crate) fn walk(server: &Server) -> Result<Vec<Product>> {
    let mut load = Load::connect(server.address, 1)?;
    let mut products = Vec::new();
    for category in
        ask(&mut load, &Request::get("/v1/categories"))?.as_array().context("categories are a list")?
    {
        let category = category.as_str().context("a category is a name")?;
        let first = format!("/v1/products?category={}&limit=100", encoded(category));
        let mut path = first.clone();
        loop {
            let page = ask(&mut load, &Request::get(&path))?;
            for item in page["items"].as_array().context("a page has items")? {
                let text =
                    |name: &str| item[name].as_str().map(str::to_owned).context("a product has this text");
                let available = item["stock_by_zone"][ZONE].as_u64().unwrap_or_default();
                let product = Product {
                    id: text("product_id")?,
                    category: text("category")?,
                    price: text("price")?,
                    available,
                };
                ensure!(product.category == category, "a product of another category");
                products.push(product);
            }
            match page["next"].as_str() {
                Some(next) => path = format!("{first}&after={}", encoded(next)),
                None => break,
            }
        }
    }
    ensure!(products.len() >= 10_000, "expected 10,000 products, found {}", products.len());
    Ok(products)
}

/// One request and its answer.
pub(crate) fn ask(load: &mut Load, request: &Request) -> Result<Value> {
    let mut answer = Value::Null;
    load.run_and_see(std::slice::from_ref(request), Until::Each, |_, body| {
        answer = serde_json::from_slice(body)?;
        Ok(())
    })?;
    Ok(answer)
}

/// For a query string.
pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
