//! Two ways to do what the shop does, measured against each other: its ports on some store, and the bare driver of it.
//!
//! - [`values`]: what is written and read, the same on both sides;
//! - [`rounds`]: clients at work, one side after the other, and what that says.

mod rounds;
mod values;

use anyhow::{Result, bail, ensure};
use mobimir_core::{
    cart::{CartChange, Owner},
    id::{OrderId, ProductId, SessionId},
    order::Order,
    product::Hold,
    session::{RefreshToken, Session},
    time::{Clock, SystemClock, Timestamp},
};

pub(crate) use self::{
    rounds::{Pace, Sides, round},
    values::{
        CART_TTL_MS, CHANGES_PER_CART, PAGE_PRODUCTS, SESSION_TTL_MS, Shop, change, check_agreement,
        new_cart, order, sale,
    },
};

pub(crate) const WORKERS: usize = 2;
/// Each with one request under way.
pub(crate) const CLIENTS: usize = 32;

/// One way to do what the shop does.
pub(crate) trait Side: Send + Sync + 'static {
    fn add_to_cart(&self, change: CartChange, now: Timestamp) -> impl Future<Output = Result<()>> + Send;
    /// Says how many changes it has.
    fn read_cart(&self, owner: Owner, now: Timestamp) -> impl Future<Output = Result<usize>> + Send;
    fn insert_order(&self, order: Order) -> impl Future<Output = Result<()>> + Send;
    /// Says whether it is there; so does the next.
    fn get_order(&self, id: OrderId) -> impl Future<Output = Result<bool>> + Send;
    fn get_session(&self, id: SessionId, now: Timestamp) -> impl Future<Output = Result<bool>> + Send;
    fn insert_session(
        &self,
        session: Session,
        refresh: RefreshToken,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Says whether it is there. Not every store has products, and those that have none leave these out.
    fn get_product(&self, _: ProductId) -> impl Future<Output = Result<bool>> + Send {
        no_products()
    }
    /// The first page by price; says how many products are on it.
    fn list_category(&self, _: &str) -> impl Future<Output = Result<usize>> + Send {
        no_products()
    }
    /// Holds what an order takes, and settles that it has it.
    fn sell(&self, _: ProductId, _: Hold, _: Timestamp) -> impl Future<Output = Result<()>> + Send {
        no_products()
    }
}

async fn no_products<T>() -> Result<T> {
    bail!("there are no products on this side")
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    ProductGet,
    ProductList,
    ProductSale,
    CartAdd,
    CartRead,
    OrderInsert,
    OrderGet,
    SessionGet,
    SessionInsert,
}

impl Operation {
    pub(crate) const ALL: [Self; 9] = [
        Self::ProductGet,
        Self::ProductList,
        Self::ProductSale,
        Self::CartAdd,
        Self::CartRead,
        Self::OrderInsert,
        Self::OrderGet,
        Self::SessionGet,
        Self::SessionInsert,
    ];

    pub(crate) fn is_of_products(self) -> bool {
        matches!(self, Self::ProductGet | Self::ProductList | Self::ProductSale)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ProductGet => "product_get",
            Self::ProductList => "product_list",
            Self::ProductSale => "product_sale",
            Self::CartAdd => "cart_add",
            Self::CartRead => "cart_read",
            Self::OrderInsert => "order_insert",
            Self::OrderGet => "order_get",
            Self::SessionGet => "session_get",
            Self::SessionInsert => "session_insert",
        }
    }

    /// The clients number themselves what they do, one after the other, through the whole shop.
    pub(crate) async fn carry_out(
        self,
        side: &impl Side,
        shop: &Shop,
        carts: &[Owner],
        number: usize,
    ) -> Result<()> {
        let now = SystemClock.now();
        match self {
            Self::ProductGet => {
                ensure!(
                    side.get_product(shop.products[number % shop.products.len()]).await?,
                    "a product is not there"
                );
                Ok(())
            }
            Self::ProductList => {
                let products = side.list_category(&shop.categories[number % shop.categories.len()]).await?;
                ensure!(products == PAGE_PRODUCTS, "a page of {PAGE_PRODUCTS} products has {products}");
                Ok(())
            }
            Self::ProductSale => {
                let id = shop.products[number % shop.products.len()];
                side.sell(id, sale(shop.zone, now), now).await
            }
            Self::CartAdd => {
                let change = values::change(carts[number % carts.len()], number, now);
                side.add_to_cart(change, now).await
            }
            Self::CartRead => {
                let changes = side.read_cart(shop.carts[number % shop.carts.len()], now).await?;
                ensure!(changes == CHANGES_PER_CART, "a cart of {CHANGES_PER_CART} changes has {changes}");
                Ok(())
            }
            Self::OrderInsert => side.insert_order(shop.order(number, now)).await,
            Self::OrderGet => {
                ensure!(
                    side.get_order(shop.orders[number % shop.orders.len()]).await?,
                    "an order is not there"
                );
                Ok(())
            }
            Self::SessionGet => {
                let id = shop.sessions[number % shop.sessions.len()];
                ensure!(side.get_session(id, now).await?, "a session is not there");
                Ok(())
            }
            Self::SessionInsert => {
                let (session, refresh) = shop.session(number, now);
                side.insert_session(session, refresh).await
            }
        }
    }
}
