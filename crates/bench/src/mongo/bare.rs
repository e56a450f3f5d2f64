//! With the bare driver: the requests of the ports by hand, with the same concerns, in sessions as they use them.
//!
//! What is read becomes typed documents with all their fields, and nothing is made of those.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result, ensure};
use futures_util::{TryStreamExt, future::try_join};
use mobimir_core::{
    cart::{CartChange, Owner},
    id::{OrderId, ProductId, SessionId},
    order::{Order, OrderLine},
    product::Hold,
    secret::SecretHash,
    session::{RefreshToken, Session},
    time::Timestamp,
};
use mobimir_lab::Mongo;
use mongodb::{
    Client, ClientSession, Collection,
    bson::{self, Binary, Document, doc, spec::BinarySubtype},
    options::{Acknowledgment, ClientOptions, ReadConcern, WriteConcern},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    DATABASE,
    documents::{CartDoc, LineDoc, MoveDoc, OrderDoc, ProductDoc, SessionDoc, TokenDoc},
    requests::{self, Update, date, gone_at, uuid},
    same::APP_NAME,
};
use crate::sides::{PAGE_PRODUCTS, Side};

pub(super) struct Bare {
    client: Client,
    products: Collection<ProductDoc>,
    carts: Collection<CartDoc>,
    orders: Collection<OrderDoc>,
    sessions: Collection<SessionDoc>,
    tokens: Collection<TokenDoc>,
    /// When the server had the last of what was written here: what is read is not from before.
    written: AtomicU64,
}

impl Bare {
    pub(super) async fn connect(mongo: &Mongo) -> Result<Self> {
        let mut options = ClientOptions::parse(mongo.uri()).await?;
        options.app_name = Some(APP_NAME.to_owned());
        options.write_concern = Some(
            WriteConcern::builder()
                .w(Acknowledgment::Majority)
                .journal(true)
                .w_timeout(std::time::Duration::from_secs(5))
                .build(),
        );
        options.read_concern = Some(ReadConcern::majority());
        let client = Client::with_options(options)?;
        let database = client.database(DATABASE);
        Ok(Self {
            products: database.collection("products"),
            carts: database.collection("carts"),
            orders: database.collection("orders"),
            sessions: database.collection("sessions"),
            tokens: database.collection("refresh_tokens"),
            written: AtomicU64::new(0),
            client,
        })
    }

    /// The products on the first page of a category.
    pub(super) async fn page(&self, category: &str) -> Result<Vec<ProductId>> {
        let found = self.listed(category).await?;
        let ids = found.iter().take(PAGE_PRODUCTS).map(|product| product.id.bytes());
        Ok(ids.map(|id| ProductId(uuid::Uuid::from_bytes(id))).collect())
    }

    async fn listed(&self, category: &str) -> Result<Vec<ProductDoc>> {
        let mut session = self.after_writes().await?;
        let find = self.products.find(doc! { "category": category }).with_options(requests::first_page());
        let mut cursor = find.session(&mut session).await?;
        Ok(cursor.stream(&mut session).try_collect().await?)
    }

    async fn find_one<T: DeserializeOwned + Send + Sync>(
        &self,
        from: &Collection<T>,
        filter: Document,
    ) -> Result<Option<T>> {
        let mut session = self.after_writes().await?;
        Ok(from.find_one(filter).session(&mut session).await?)
    }

    async fn insert_one<T: Serialize + Send + Sync>(&self, into: &Collection<T>, document: &T) -> Result<()> {
        let mut session = self.client.start_session().await?;
        into.insert_one(document).session(&mut session).await?;
        self.note_written(&session);
        Ok(())
    }

    async fn update_one<T: Send + Sync>(
        &self,
        of: &Collection<T>,
        (filter, update): Update,
        upsert: bool,
    ) -> Result<()> {
        let mut session = self.client.start_session().await?;
        let updated = of.update_one(filter, update).upsert(upsert).session(&mut session).await?;
        self.note_written(&session);
        ensure!(updated.matched_count > 0 || updated.upserted_id.is_some(), "an update changed nothing");
        Ok(())
    }

    /// For reads.
    async fn after_writes(&self) -> Result<ClientSession> {
        let mut session = self.client.start_session().await?;
        let written = self.written.load(Ordering::Acquire).to_be_bytes();
        let [a, b, c, d, e, f, g, h] = written;
        let (time, increment) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        session.advance_operation_time(bson::Timestamp { time, increment });
        Ok(session)
    }

    fn note_written(&self, session: &ClientSession) {
        if let Some(at) = session.operation_time() {
            let at = u64::from(at.time) << 32 | u64::from(at.increment);
            self.written.fetch_max(at, Ordering::AcqRel);
        }
    }
}

impl Side for Bare {
    async fn add_to_cart(&self, change: CartChange, now: Timestamp) -> Result<()> {
        let update = requests::add_to_cart(&change, now).context("only adding is measured")?;
        self.update_one(&self.carts, update, true).await
    }

    async fn read_cart(&self, owner: Owner, _: Timestamp) -> Result<usize> {
        let cart = black_box(self.find_one(&self.carts, requests::cart(owner)).await?);
        Ok(cart.map_or(0, |cart| cart.changes.len()))
    }

    async fn insert_order(&self, order: Order) -> Result<()> {
        let mut session = self.client.start_session().await?;
        let insert = self.orders.insert_many([order_document(order)]).ordered(false);
        let inserted = insert.session(&mut session).await?;
        self.note_written(&session);
        ensure!(inserted.inserted_ids.len() == 1, "an order was there before");
        Ok(())
    }

    async fn get_order(&self, id: OrderId) -> Result<bool> {
        Ok(black_box(self.find_one(&self.orders, doc! { "_id": uuid(id.0) }).await?).is_some())
    }

    async fn get_session(&self, id: SessionId, _: Timestamp) -> Result<bool> {
        Ok(black_box(self.find_one(&self.sessions, doc! { "_id": uuid(id.0) }).await?).is_some())
    }

    async fn insert_session(&self, session: Session, refresh: RefreshToken) -> Result<()> {
        let token = TokenDoc {
            hash: binary(refresh.hash),
            session_id: uuid(refresh.session.0),
            expires_at: date(refresh.expires_at),
            gone_at: gone_at(refresh.expires_at),
            used_at: None,
            version: session.version.0.cast_signed(),
        };
        let session = session_document(session);
        try_join(self.insert_one(&self.sessions, &session), self.insert_one(&self.tokens, &token)).await?;
        Ok(())
    }

    async fn get_product(&self, id: ProductId) -> Result<bool> {
        Ok(black_box(self.find_one(&self.products, doc! { "_id": uuid(id.0) }).await?).is_some())
    }

    async fn list_category(&self, category: &str) -> Result<usize> {
        Ok(black_box(self.listed(category).await?).len().min(PAGE_PRODUCTS))
    }

    async fn sell(&self, id: ProductId, hold: Hold, now: Timestamp) -> Result<()> {
        self.update_one(&self.products, requests::hold(id, &hold, now), false).await?;
        self.update_one(&self.products, requests::settle(id, &hold, now), false).await
    }
}

fn order_document(order: Order) -> OrderDoc {
    let line = |line: OrderLine| LineDoc {
        product_id: uuid(line.product_id.0),
        name: line.name,
        category: line.category,
        price: i64::try_from(line.price.kopecks()).unwrap_or(i64::MAX),
        quantity: line.quantity.cast_signed(),
    };
    let status = order.status.as_str().to_owned();
    OrderDoc {
        id: uuid(order.id.0),
        user_id: uuid(order.user_id.0),
        geo_zone: order.geo_zone.to_string(),
        day: order.created_at.day().number(),
        lines: order.lines.into_iter().map(line).collect(),
        shipping_address: order.shipping_address,
        payment_method: order.payment_method,
        created_at: date(order.created_at),
        updated_at: date(order.updated_at),
        bucket: order.bucket.into(),
        version: order.version.0.cast_signed(),
        history: vec![MoveDoc { status: status.clone(), at: date(order.created_at), operator: None }],
        status,
    }
}

/// Of a session that lives.
fn session_document(session: Session) -> SessionDoc {
    SessionDoc {
        id: uuid(session.id.0),
        user_id: session.user().map(|user| uuid(user.0)),
        token_hash: binary(session.token_hash),
        state: "live".to_owned(),
        state_at: None,
        closed_into: None,
        unmerged_since: None,
        ip_address: session.ip_address.map(|address| address.to_string()),
        user_agent: session.user_agent,
        device: session.device,
        created_at: date(session.created_at),
        last_active: date(session.last_active),
        expires_at: date(session.expires_at),
        gone_at: gone_at(session.expires_at),
        version: session.version.0.cast_signed(),
    }
}

fn binary(secret: SecretHash) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: secret.0.to_vec() }
}
