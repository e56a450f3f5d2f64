//! Shop data made up by proptest: everything the domain allows, the awkward more often than in life.
//!
//! Every strategy gives whole, valid values with random ids. Tests that need values to meet (the same product in two
//! carts) set the ids afterwards.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use mobimir_core::{
    cart::{CartChange, Effect, Owner},
    checkout::{CartTake, Checkout, CheckoutState, Fate},
    id::{ChangeId, OrderId, ProductId, SessionId, UserId},
    money::{Money, PRICE_MAX},
    order::{Order, OrderLine, OrderStatus},
    product::{Attribute, Product, ProductEdit, ProductSort, QUANTITY_MAX, STOCK_MAX},
    secret::SecretHash,
    session::{Holder, RefreshToken, Session, SessionState},
    time::{Timestamp, Version},
    user::{Email, Profile, User},
    zone::Zone,
};
use proptest::{collection, option, prelude::*, sample};
use uuid::Uuid;

/// Checkouts that nobody finishes are aborted after this long, as in the default policy.
const CHECKOUT_DEADLINE_S: i64 = 15;
const DAY_S: i64 = 86_400;

/// 2025-11-28, a Black Friday.
const BLACK_FRIDAY_MS: i64 = 1_764_288_000_000;

/// Zones that tests use: the usual, and the shortest and longest there can be.
pub const ZONES: [&str; 5] = ["MSK", "SPB", "EKB", "0", "A-Z_0123456789AB"];

pub fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

/// A time within a year of a Black Friday; a fifth of them at the same millisecond.
pub fn timestamp() -> impl Strategy<Value = Timestamp> {
    prop_oneof![1 => Just(0), 4 => 0..365 * DAY_S * 1_000]
        .prop_map(|ms| Timestamp::from_millis(BLACK_FRIDAY_MS + ms))
}

pub fn zone() -> impl Strategy<Value = Zone> {
    sample::select(&ZONES[..]).prop_map(|code| Zone::parse(code).expect("these are zones"))
}

/// Text of 1 to `chars_max` characters, not blank and without NUL: words of both alphabets, signs that separators
/// and quoting fall over, characters outside the first plane, and sometimes as long as it may be.
pub fn text(chars_max: usize) -> impl Strategy<Value = String> {
    let word = sample::select(
        &[
            "Телефон",
            "чёрный",
            "ЧЕРНЫЙ",
            "наушники",
            "Phone",
            "phones",
            "ёж",
            "X-1000",
            "é",
            "ß",
            "ﬃ",
            "İ",
            "東京",
            "😀",
            "👨‍👩‍👧",
            "%",
            "_",
            "'",
            "\"",
            "\\",
            "{$gt}",
            "$",
            ".",
            "a.b",
            "/",
            "\t",
            "\u{1}",
            "\u{7f}",
            "\u{feff}",
            "\u{200f}",
            "\u{ffff}",
            "\u{10ffff}",
            "NULL",
            "0",
            "-1",
        ][..],
    );
    let words = collection::vec(word, 1..5).prop_map(|words| words.join(" "));
    let long = sample::select(&['я', 'w', '😀'][..])
        .prop_map(move |letter| String::from_iter(std::iter::repeat_n(letter, chars_max)));
    let anything = "[^\u{0}]{1,12}";
    prop_oneof![8 => words, 2 => anything, 1 => long].prop_map(move |text| {
        let cut: String = text.chars().take(chars_max).collect();
        if cut.trim().is_empty() { "x".to_owned() } else { cut }
    })
}

/// A price; few different ones are the most frequent, so that equal prices are met.
pub fn price() -> impl Strategy<Value = Money> {
    prop_oneof![
        6 => (0..4i128).prop_map(|n| n * 10_000 + 99),
        1 => Just(0),
        1 => Just(PRICE_MAX.kopecks()),
        2 => 0..=PRICE_MAX.kopecks(),
    ]
    .prop_map(Money::from_kopecks)
}

pub fn quantity() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1..5u64, 1 => Just(QUANTITY_MAX), 1 => 1..=QUANTITY_MAX]
}

pub fn attributes() -> impl Strategy<Value = BTreeMap<String, Attribute>> {
    let value = prop_oneof![
        any::<bool>().prop_map(Attribute::Flag),
        any::<i64>().prop_map(Attribute::Integer),
        // Whole numbers must come back as what they were, a decimal.
        (-1_000..1_000i32).prop_map(|n| Attribute::Decimal(f64::from(n))),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Attribute::Decimal),
        Just(Attribute::Text(String::new())),
        text(1_000).prop_map(Attribute::Text),
    ];
    collection::btree_map(text(64), value, 0..4)
}

pub fn product() -> impl Strategy<Value = Product> {
    let units = prop_oneof![1 => Just(0), 1 => Just(STOCK_MAX), 6 => 0..20u64];
    let stock = collection::btree_map(zone(), units, 0..4);
    (uuid(), text(300), text(100), price(), attributes(), stock, timestamp()).prop_map(
        |(id, name, category, price, attributes, stock, now)| {
            Product::new(ProductId(id), name, category, price, attributes, stock, now)
                .expect("the strategy keeps to the limits")
        },
    )
}

pub fn product_edit() -> impl Strategy<Value = ProductEdit> {
    (option::of(text(300)), option::of(text(100)), option::of(price()), option::of(attributes()))
        .prop_map(|(name, category, price, attributes)| ProductEdit { name, category, price, attributes })
}

pub fn product_sort() -> impl Strategy<Value = ProductSort> {
    prop_oneof![
        Just(ProductSort::PriceAscending),
        Just(ProductSort::PriceDescending),
        Just(ProductSort::Name)
    ]
}

pub fn email() -> impl Strategy<Value = Email> {
    ("[a-zа-я0-9._%+'-]{1,20}", "[a-zа-я0-9-]{1,10}", "[a-zа-я]{2,5}").prop_map(|(who, host, top)| {
        Email::parse(&format!("{who}@{host}.{top}")).expect("the strategy makes well-formed addresses")
    })
}

pub fn profile() -> impl Strategy<Value = Profile> {
    (option::of(text(200)), option::of(text(200)), option::of(zone()), option::of(text(1_000))).prop_map(
        |(name, phone, geo_zone, shipping_address)| Profile { name, phone, geo_zone, shipping_address },
    )
}

pub fn user() -> impl Strategy<Value = User> {
    let password_hash =
        prop_oneof![Just(String::new()), Just("$argon2id$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA".into())];
    (uuid(), email(), password_hash, profile(), timestamp()).prop_map(
        |(id, email, password_hash, profile, now)| User {
            id: UserId(id),
            email,
            password_hash,
            profile,
            created_at: now,
            updated_at: now,
            version: Version::default().next(now),
        },
    )
}

pub fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        uuid().prop_map(|id| Owner::User(UserId(id))),
        uuid().prop_map(|id| Owner::Guest(SessionId(id)))
    ]
}

/// A change of one of `products`, in a cart of its own.
pub fn cart_change(products: Vec<ProductId>) -> impl Strategy<Value = CartChange> {
    let effect =
        (sample::select(products), 0..4u8, quantity(), option::of(zone()), collection::vec(uuid(), 0..3))
            .prop_map(|(product, kind, quantity, zone, covers)| {
                let covers: Vec<ChangeId> = covers.into_iter().map(ChangeId).collect();
                match kind {
                    0 | 1 => Effect::Add { product, quantity, zone },
                    2 => Effect::Set { product, quantity: quantity - 1, zone, covers },
                    _ => Effect::Cover { covers, order: None },
                }
            });
    (uuid(), timestamp(), owner(), any::<bool>(), effect).prop_map(|(id, at, origin, keyed, effect)| {
        CartChange { id: ChangeId(id), at, origin, keyed, effect }
    })
}

pub fn order_line() -> impl Strategy<Value = OrderLine> {
    (uuid(), text(300), text(100), price(), quantity()).prop_map(
        |(product_id, name, category, price, quantity)| OrderLine {
            product_id: ProductId(product_id),
            name,
            category,
            price,
            quantity,
        },
    )
}

pub fn order_status() -> impl Strategy<Value = OrderStatus> {
    sample::select(&OrderStatus::ALL[..])
}

/// An order as it is written first.
pub fn order() -> impl Strategy<Value = Order> {
    (checkout(), prop_oneof![4 => Just(OrderStatus::Confirmed), 1 => order_status()])
        .prop_map(|(checkout, status)| Order { status, ..checkout.order() })
}

/// An open checkout, as it is inserted.
pub fn checkout() -> impl Strategy<Value = Checkout> {
    let cart = option::of((owner(), collection::vec(uuid(), 0..4), option::of(uuid())).prop_map(
        |(owner, covers, after)| CartTake {
            owner,
            covers: covers.into_iter().map(ChangeId).collect(),
            after: after.map(OrderId),
        },
    ));
    let texts = (option::of(text(1_000)), option::of(text(64)));
    let lines = collection::vec(order_line(), 1..4);
    let ids = (uuid(), uuid(), any::<[u8; 32]>());
    (ids, zone(), lines, texts, cart, timestamp(), any::<u16>()).prop_map(
        |((order, user, request_hash), geo_zone, lines, texts, cart, now, bucket)| Checkout {
            order_id: OrderId(order),
            user_id: UserId(user),
            request_hash,
            geo_zone,
            lines,
            shipping_address: texts.0,
            payment_method: texts.1,
            cart,
            created_at: now,
            deadline: now.plus_s(CHECKOUT_DEADLINE_S),
            bucket,
            state: CheckoutState::Open,
            fate: Fate::InStore,
            due_at: Some(now.plus_s(CHECKOUT_DEADLINE_S)),
            version: Version::default().next(now),
        },
    )
}

pub fn ip_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

/// A live session of a guest or a user, for 30 days.
pub fn session() -> impl Strategy<Value = Session> {
    let holder = prop_oneof![Just(Holder::Guest), uuid().prop_map(|id| Holder::User(UserId(id)))];
    let caller = (option::of(ip_address()), option::of(text(256)), option::of(text(64)));
    (uuid(), holder, any::<[u8; 32]>(), caller, timestamp()).prop_map(
        |(id, holder, token, (ip_address, user_agent, device), now)| Session {
            id: SessionId(id),
            holder,
            token_hash: SecretHash(token),
            state: SessionState::Live,
            ip_address,
            user_agent,
            device,
            created_at: now,
            last_active: now,
            expires_at: now.plus_s(30 * DAY_S),
            version: Version::default().next(now),
        },
    )
}

/// A refresh token that lasts as long as its session.
pub fn refresh_token(session: Session) -> impl Strategy<Value = RefreshToken> {
    any::<[u8; 32]>().prop_map(move |hash| RefreshToken {
        hash: SecretHash(hash),
        session: session.id,
        expires_at: session.expires_at,
    })
}
