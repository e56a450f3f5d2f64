//! What is written and read: the same values for both sides.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result, ensure};
use mobimir_core::{
    cart::{CartChange, Effect, Owner},
    id::{self, AttemptId, ChangeId, OrderId, ProductId, SessionId, UserId},
    money::Money,
    order::{Order, OrderLine, OrderStatus},
    ports::{CartStore, OrderStore, SessionStore},
    product::{Hold, HoldKind},
    secret::SecretHash,
    session::{Holder, RefreshToken, Session, SessionState},
    time::{Clock, SystemClock, Timestamp, Version},
    zone::Zone,
};
use uuid::Uuid;

use super::{CLIENTS, Side};

pub(crate) const CHANGES_PER_CART: usize = 8;
pub(crate) const PAGE_PRODUCTS: usize = 20;
pub(crate) const CART_TTL_MS: i64 = 30 * 86_400_000;
pub(crate) const SESSION_TTL_MS: i64 = 30 * 86_400_000;
const REFRESH_TTL_MS: i64 = 60 * 86_400_000;
const USERS: usize = 256;
const BUCKETS: u16 = 8;
const CARTS_PER_CLIENT: usize = 8;
const CARTS: usize = CLIENTS * CARTS_PER_CLIENT;

/// What there is to be read, and who orders.
#[derive(Clone)]
pub(crate) struct Shop {
    users: Vec<UserId>,
    pub(crate) zone: Zone,
    /// Where there are any.
    pub(crate) products: Vec<ProductId>,
    /// Each of them has more products than fit on a page.
    pub(crate) categories: Vec<String>,
    /// Each with [`CHANGES_PER_CART`] changes.
    pub(crate) carts: Vec<Owner>,
    pub(crate) orders: Vec<OrderId>,
    pub(crate) sessions: Vec<SessionId>,
}

/// One line of one product is added.
pub(crate) fn change(owner: Owner, number: usize, now: Timestamp) -> CartChange {
    let product = ProductId(Uuid::from_u128((number / CARTS % CHANGES_PER_CART) as u128));
    let effect = Effect::Add { product, quantity: 1, zone: None };
    CartChange { id: ChangeId(id::fresh(now)), at: now, origin: owner, keyed: false, effect }
}

pub(crate) fn new_cart(now: Timestamp) -> Owner {
    Owner::User(UserId(id::fresh(now)))
}

/// New carts with a change each.
pub(crate) async fn started_carts(side: &impl Side) -> Result<Vec<Owner>> {
    let mut carts = Vec::with_capacity(CARTS);
    for _ in 0..CARTS {
        let now = SystemClock.now();
        let owner = new_cart(now);
        side.add_to_cart(change(owner, 0, now), now).await?;
        carts.push(owner);
    }
    Ok(carts)
}

impl Shop {
    /// With carts, orders and sessions.
    pub(crate) async fn fill(side: &impl Side) -> Result<Self> {
        let now = SystemClock.now();
        let mut shop = Self {
            users: (0..USERS).map(|_| UserId(id::fresh(now))).collect(),
            zone: Zone::parse("MSK")?,
            products: Vec::new(),
            categories: Vec::new(),
            carts: Vec::new(),
            orders: Vec::new(),
            sessions: Vec::new(),
        };
        for _ in 0..CARTS {
            let owner = new_cart(now);
            for number in 0..CHANGES_PER_CART {
                let now = SystemClock.now();
                side.add_to_cart(change(owner, number * CARTS, now), now).await?;
            }
            shop.carts.push(owner);
        }
        // One of each user: the partitions of all further orders are known then.
        for number in 0..USERS {
            let now = SystemClock.now();
            let order = shop.order(number, now);
            shop.orders.push(order.id);
            side.insert_order(order).await?;
            let (session, refresh) = shop.session(number, now);
            shop.sessions.push(session.id);
            side.insert_session(session, refresh).await?;
        }
        Ok(shop)
    }

    pub(crate) fn order(&self, number: usize, now: Timestamp) -> Order {
        order(self.users[number % self.users.len()], number, self.zone, now)
    }

    /// A new session of a user, with its refresh token.
    pub(crate) fn session(&self, number: usize, now: Timestamp) -> (Session, RefreshToken) {
        let session = Session {
            id: SessionId(id::fresh(now)),
            holder: Holder::User(self.users[number % self.users.len()]),
            token_hash: SecretHash(mobimir_core::secret::random_bytes()),
            state: SessionState::Live,
            ip_address: Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))),
            user_agent: Some(
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0".to_owned(),
            ),
            device: Some("Firefox on Linux".to_owned()),
            created_at: now,
            last_active: now,
            expires_at: now.plus_ms(SESSION_TTL_MS),
            version: Version::default().next(now),
        };
        let refresh = RefreshToken {
            hash: SecretHash(mobimir_core::secret::random_bytes()),
            session: session.id,
            expires_at: now.plus_ms(REFRESH_TTL_MS),
        };
        (session, refresh)
    }
}

/// A new order with two lines.
pub(crate) fn order(user_id: UserId, number: usize, geo_zone: Zone, now: Timestamp) -> Order {
    let line = |number: u8| OrderLine {
        product_id: ProductId(Uuid::from_u128(u128::from(number))),
        name: format!("Смартфон «Звезда» {number}"),
        category: "Электроника".to_owned(),
        price: Money::from_kopecks(1_299_900),
        quantity: 1,
    };
    Order {
        id: OrderId(id::fresh(now)),
        user_id,
        status: OrderStatus::Confirmed,
        geo_zone,
        lines: vec![line(1), line(2)],
        shipping_address: Some("Москва, ул. Ленина, 1".to_owned()),
        payment_method: Some("card".to_owned()),
        created_at: now,
        updated_at: now,
        bucket: (number % usize::from(BUCKETS)) as u16,
        version: Version::default().next(now),
    }
}

/// One unit, for an order and a run that nobody else has.
pub(crate) fn sale(zone: Zone, now: Timestamp) -> Hold {
    Hold {
        order: OrderId(id::fresh(now)),
        attempt: AttemptId(id::fresh(now)),
        kind: HoldKind::Sale,
        zone,
        quantity: 1,
        placed_at: now,
    }
}

/// Each side reads what the other has written: otherwise they would not do the same. The shop is the port's.
pub(crate) async fn check_agreement(
    carts: &impl CartStore,
    orders: &impl OrderStore,
    sessions: &impl SessionStore,
    bare: &impl Side,
    shop: &Shop,
) -> Result<()> {
    let now = SystemClock.now();
    let owner = new_cart(now);
    bare.add_to_cart(change(owner, 0, now), now).await?;
    let cart = carts.read(owner, now).await?.context("the port does not find a cart")?;
    ensure!(cart.changes.len() == 1 && cart.expires_at == now.plus_ms(CART_TTL_MS), "the cart is another");
    ensure!(bare.read_cart(shop.carts[0], now).await? == CHANGES_PER_CART, "the driver misses changes");

    let order = shop.order(0, now);
    bare.insert_order(order.clone()).await?;
    ensure!(orders.get(order.id).await?.as_ref() == Some(&order), "the order is another");
    let page = orders.by_day(order.day(), Default::default(), None, 1_000).await?;
    ensure!(page.items.contains(&order), "the order is not in the list of its day");
    ensure!(bare.get_order(shop.orders[0]).await?, "the driver does not find an order");

    let (session, refresh) = shop.session(0, now);
    bare.insert_session(session.clone(), refresh).await?;
    ensure!(sessions.get(session.id, now).await?.as_ref() == Some(&session), "the session is another");
    ensure!(bare.get_session(shop.sessions[0], now).await?, "the driver does not find a session");
    Ok(())
}
