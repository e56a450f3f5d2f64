//! Through the ports of the shop.

use anyhow::{Result, ensure};
use mobimir_core::{
    cart::{CartChange, Owner},
    id::{OrderId, ProductId, SessionId},
    order::Order,
    policy::Entity,
    ports::{CartStore, OrderStore, ProductStore, SessionStore},
    product::{Decision, Hold, HoldOutcome, ProductQuery, ProductSort, Verdict},
    session::{RefreshToken, Session},
    time::Timestamp,
};
use mobimir_lab::Mongo;
use mobimir_mongodb::{
    Deployment, MongoCarts, MongoConfig, MongoOrders, MongoProducts, MongoSessions, schema,
};

use super::DATABASE;
use crate::sides::{CART_TTL_MS, PAGE_PRODUCTS, Side};

pub(super) struct Port {
    pub(super) products: MongoProducts,
    pub(super) carts: MongoCarts,
    pub(super) orders: MongoOrders,
    pub(super) sessions: MongoSessions,
}

impl Port {
    /// Makes the collections as well.
    pub(super) async fn connect(mongo: &Mongo) -> Result<Self> {
        let config =
            MongoConfig { uri: mongo.uri(), database: DATABASE.to_owned(), ..MongoConfig::default() };
        let deployment = Deployment::connect(config).await?;
        for entity in [Entity::Products, Entity::Carts, Entity::Orders, Entity::Sessions] {
            schema::apply(&deployment, &schema::collections(entity)).await?;
        }
        Ok(Self {
            products: MongoProducts::new(deployment.clone()),
            carts: MongoCarts::new(deployment.clone()),
            orders: MongoOrders::new(deployment.clone()),
            sessions: MongoSessions::new(deployment),
        })
    }
}

/// The first page of a category, the cheapest first.
pub(super) fn first_page(category: &str) -> ProductQuery {
    ProductQuery {
        category: Some(category.to_owned()),
        price_min: None,
        price_max: None,
        terms: [].into(),
        zone: None,
        sort: ProductSort::PriceAscending,
        after: None,
        limit: PAGE_PRODUCTS,
    }
}

impl Side for Port {
    async fn add_to_cart(&self, change: CartChange, now: Timestamp) -> Result<()> {
        let expires_at = now.plus_ms(CART_TTL_MS);
        Ok(self.carts.append(change.origin, vec![change], expires_at, now).await?)
    }

    async fn read_cart(&self, owner: Owner, now: Timestamp) -> Result<usize> {
        Ok(self.carts.read(owner, now).await?.map_or(0, |cart| cart.changes.len()))
    }

    async fn insert_order(&self, order: Order) -> Result<()> {
        ensure!(self.orders.insert(vec![order]).await? == 1, "an order was there before");
        Ok(())
    }

    async fn get_order(&self, id: OrderId) -> Result<bool> {
        Ok(self.orders.get(id).await?.is_some())
    }

    async fn get_session(&self, id: SessionId, now: Timestamp) -> Result<bool> {
        Ok(self.sessions.get(id, now).await?.is_some())
    }

    async fn insert_session(&self, session: Session, refresh: RefreshToken) -> Result<()> {
        Ok(self.sessions.insert(session, Some(refresh)).await?)
    }

    async fn get_product(&self, id: ProductId) -> Result<bool> {
        Ok(self.products.get(id).await?.is_some())
    }

    async fn list_category(&self, category: &str) -> Result<usize> {
        Ok(self.products.list(first_page(category)).await?.items.len())
    }

    async fn sell(&self, id: ProductId, hold: Hold, now: Timestamp) -> Result<()> {
        let held = self.products.hold(id, hold, now).await?;
        ensure!(held == HoldOutcome::Held, "a unit could not be held: {held:?}");
        let sold = Verdict { sale: Decision::Won(hold.attempt), cancellation: Decision::Undecided };
        ensure!(self.products.settle(id, hold.order, sold, now).await?, "a hold was not there");
        Ok(())
    }
}
