//! What the tests share.

#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{collections::BTreeMap, path::Path};

use mobimir_core::{
    cart::{CartChange, Effect, Owner},
    id::{AttemptId, ChangeId, OrderId, ProductId, SessionId, UserId},
    money::Money,
    order::{Order, OrderLine, OrderStatus},
    product::{Hold, HoldKind, Product},
    secret::SecretHash,
    session::{Holder, Session, SessionState},
    time::{Timestamp, Version},
    zone::Zone,
};
use mobimir_embedded::{EmbeddedStore, Options};
use uuid::Uuid;

pub(crate) const NOON: Timestamp = Timestamp::from_millis(1_764_331_200_000);

pub(crate) fn open(dir: &Path) -> EmbeddedStore {
    EmbeddedStore::open(dir, &Options::default()).unwrap()
}

pub(crate) fn zone() -> Zone {
    Zone::parse("MSK").unwrap()
}

pub(crate) fn product_id(number: u128) -> ProductId {
    ProductId(Uuid::from_u128(number))
}

pub(crate) fn product(number: u128, units: u64) -> Product {
    let price = Money::from_kopecks((number as i128 * 7_919) % 1_000_000);
    let stock = BTreeMap::from([(zone(), units)]);
    let name = format!("Телефон Самсунг {number} чёрный");
    let category = format!("Категория {}", number % 20);
    Product::new(product_id(number), name, category, price, BTreeMap::new(), stock, NOON).unwrap()
}

pub(crate) fn hold(order: u128, quantity: u64) -> Hold {
    Hold {
        order: OrderId(Uuid::from_u128(order)),
        attempt: AttemptId(Uuid::from_u128(order)),
        kind: HoldKind::Sale,
        zone: zone(),
        quantity,
        placed_at: NOON,
    }
}

pub(crate) fn owner(number: u128) -> Owner {
    Owner::User(UserId(Uuid::from_u128(number)))
}

pub(crate) fn add(owner: Owner, change: u128, quantity: u64) -> CartChange {
    CartChange {
        id: ChangeId(Uuid::from_u128(change)),
        at: NOON,
        origin: owner,
        keyed: false,
        effect: Effect::Add { product: product_id(1), quantity, zone: None },
    }
}

pub(crate) fn order(number: u128, user: u128) -> Order {
    let line = |line: u128| OrderLine {
        product_id: product_id(line),
        name: format!("Телефон Самсунг {line} чёрный"),
        category: "Электроника".into(),
        price: Money::from_kopecks(1_200_000),
        quantity: 2,
    };
    let created_at = NOON.plus_ms(number as i64 % 60_000);
    Order {
        id: OrderId(Uuid::from_u128(number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))),
        user_id: UserId(Uuid::from_u128(user)),
        status: OrderStatus::Confirmed,
        geo_zone: zone(),
        lines: (number % 3..number % 3 + 3).map(line).collect(),
        shipping_address: Some("Москва, Тверская ул., 1".into()),
        payment_method: None,
        created_at,
        updated_at: created_at,
        bucket: 0,
        version: Version::default().next(created_at),
    }
}

pub(crate) fn session(number: u128, holder: Holder, expires_at: Timestamp) -> Session {
    Session {
        id: SessionId(Uuid::from_u128(number)),
        holder,
        token_hash: SecretHash([7; 32]),
        state: SessionState::Live,
        ip_address: None,
        user_agent: None,
        device: None,
        created_at: NOON,
        last_active: NOON,
        expires_at,
        version: Version::default().next(NOON),
    }
}
