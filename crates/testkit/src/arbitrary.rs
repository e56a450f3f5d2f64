//! Values that keep to nothing but their types, for the round trips of what stores write: more than the domain allows,
//! since a record must not be the place where a value is lost.

use mobimir_core::{
    cart::{CartChange, Effect, Owner, Packed, Part},
    checkout::{AbortReason, CartTake, Checkout, CheckoutState, Fate, ShortLine},
    id::{AttemptId, ChangeId, OrderId, ProductId, SessionId, UserId},
    money::Money,
    order::{Order, OrderLine, OrderStatus},
    product::{Attribute, Hold, HoldKind, Product, ZoneStock},
    secret::SecretHash,
    session::{Holder, Session, SessionState},
    time::{Timestamp, Version},
    user::{Email, Profile, User},
    zone::Zone,
};
use proptest::{collection::vec, option, prelude::*};
use uuid::Uuid;

pub fn id() -> impl Strategy<Value = Uuid> {
    prop_oneof![any::<u128>(), 0..3u128].prop_map(Uuid::from_u128)
}

pub fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![-60_000_000_000_000..250_000_000_000_000i64, 0..3i64].prop_map(Timestamp::from_millis)
}

pub fn zone() -> impl Strategy<Value = Zone> {
    "[A-Z0-9_-]{1,16}".prop_map(|code| Zone::parse(&code).expect("the strategy makes zones"))
}

fn text() -> impl Strategy<Value = Option<String>> {
    option::of(".{0,12}")
}

pub fn money() -> impl Strategy<Value = Money> {
    prop_oneof![any::<i128>(), 0..1_000_000_000_000i128].prop_map(Money::from_kopecks)
}

pub fn owner() -> impl Strategy<Value = Owner> {
    (id(), any::<bool>())
        .prop_map(|(id, guest)| if guest { Owner::Guest(SessionId(id)) } else { Owner::User(UserId(id)) })
}

pub fn product() -> impl Strategy<Value = Product> {
    let attribute = prop_oneof![
        any::<bool>().prop_map(Attribute::Flag),
        any::<i64>().prop_map(Attribute::Integer),
        (-1e9..1e9f64).prop_map(Attribute::Decimal),
        ".{0,8}".prop_map(Attribute::Text),
    ];
    let stock = (0..3u64, 0..9u64, 0..9u64).prop_map(|(available, reserved, sold)| ZoneStock {
        received: 9,
        available,
        reserved,
        sold,
    });
    let hold = (id(), id(), any::<bool>(), zone(), any::<u64>(), time()).prop_map(
        |(order, attempt, sale, zone, quantity, placed_at)| Hold {
            order: OrderId(order),
            attempt: AttemptId(attempt),
            kind: if sale { HoldKind::Sale } else { HoldKind::Return },
            zone,
            quantity,
            placed_at,
        },
    );
    let fields = (id(), "[ЁёАя aB\0-]{1,6}", "[Aя]{1,3}", 0..4i128);
    let parts = (
        proptest::collection::btree_map(".{1,4}", attribute, 0..4),
        proptest::collection::btree_map(zone(), stock, 0..4),
        vec(hold, 0..3),
    );
    (fields, parts, time(), time(), any::<u64>()).prop_map(
        |((id, name, category, kopecks), (attributes, stock, holds), created_at, updated_at, version)| {
            Product {
                id: ProductId(id),
                name,
                category,
                price: Money::from_kopecks(kopecks),
                attributes,
                stock,
                holds,
                created_at,
                updated_at,
                version: Version(version),
            }
        },
    )
}

pub fn line() -> impl Strategy<Value = OrderLine> {
    (id(), ".{0,8}", ".{0,8}", money(), any::<u64>()).prop_map(
        |(product_id, name, category, price, quantity)| OrderLine {
            product_id: ProductId(product_id),
            name,
            category,
            price,
            quantity,
        },
    )
}

pub fn order() -> impl Strategy<Value = Order> {
    let ids = (id(), id(), zone(), vec(line(), 0..3));
    (ids, 0..6usize, text(), text(), time(), time(), any::<u16>(), any::<u64>()).prop_map(
        |(
            (id, user_id, geo_zone, lines),
            status,
            address,
            payment,
            created_at,
            updated_at,
            bucket,
            version,
        )| {
            Order {
                id: OrderId(id),
                user_id: UserId(user_id),
                status: OrderStatus::ALL[status],
                geo_zone,
                lines,
                shipping_address: address,
                payment_method: payment,
                created_at,
                updated_at,
                bucket,
                version: Version(version),
            }
        },
    )
}

pub fn checkout() -> impl Strategy<Value = Checkout> {
    let short = (id(), any::<u64>(), any::<u64>()).prop_map(|(id, requested, available)| ShortLine {
        product_id: ProductId(id),
        requested,
        available,
    });
    let state = prop_oneof![
        Just(CheckoutState::Open),
        (id(), time()).prop_map(|(id, at)| CheckoutState::Committed { attempt: AttemptId(id), at }),
        vec(short, 0..3)
            .prop_map(|lines| CheckoutState::Aborted { reason: AbortReason::OutOfStock { lines } }),
        Just(CheckoutState::Aborted { reason: AbortReason::Expired }),
        id().prop_map(|id| CheckoutState::Aborted { reason: AbortReason::CartOrdered { by: OrderId(id) } }),
    ];
    let fate = prop_oneof![
        Just(Fate::InStore),
        Just(Fate::Dispatched),
        (id(), time(), text()).prop_map(|(id, at, operator)| Fate::Cancelled {
            attempt: AttemptId(id),
            at,
            operator
        }),
    ];
    let cart = option::of((owner(), vec(id(), 0..3), option::of(id()))).prop_map(|take| {
        take.map(|(owner, covers, after)| CartTake {
            owner,
            covers: covers.into_iter().map(ChangeId).collect(),
            after: after.map(OrderId),
        })
    });
    (order(), any::<[u8; 32]>(), state, fate, cart, time(), option::of(time())).prop_map(
        |(order, request_hash, state, fate, cart, deadline, due_at)| Checkout {
            order_id: order.id,
            user_id: order.user_id,
            request_hash,
            geo_zone: order.geo_zone,
            lines: order.lines,
            shipping_address: order.shipping_address,
            payment_method: order.payment_method,
            cart,
            created_at: order.created_at,
            deadline,
            bucket: order.bucket,
            state,
            fate,
            due_at,
            version: order.version,
        },
    )
}

pub fn cart_change() -> impl Strategy<Value = CartChange> {
    let covers = || vec(id(), 0..3).prop_map(|ids| ids.into_iter().map(ChangeId).collect::<Vec<_>>());
    let part = (id(), time(), owner(), any::<(bool, bool)>(), id(), any::<u64>()).prop_map(
        |(id, at, origin, (keyed, is_set), product, quantity)| Part {
            id: ChangeId(id),
            at,
            origin,
            keyed,
            is_set,
            product: ProductId(product),
            quantity,
        },
    );
    let remembered = (id(), time()).prop_map(|(id, at)| (ChangeId(id), at));
    let effect = prop_oneof![
        (id(), any::<u64>(), option::of(zone())).prop_map(|(product, quantity, zone)| Effect::Add {
            product: ProductId(product),
            quantity,
            zone
        }),
        (id(), any::<u64>(), option::of(zone()), covers()).prop_map(|(product, quantity, zone, covers)| {
            Effect::Set { product: ProductId(product), quantity, zone, covers }
        }),
        (covers(), option::of(id()))
            .prop_map(|(covers, order)| Effect::Cover { covers, order: order.map(OrderId) }),
        (vec(part, 0..3), vec(remembered, 0..3), option::of((zone(), time())))
            .prop_map(|(parts, remembered, zone)| Effect::Packed(Packed { parts, remembered, zone })),
    ];
    (id(), time(), owner(), any::<bool>(), effect).prop_map(|(id, at, origin, keyed, effect)| CartChange {
        id: ChangeId(id),
        at,
        origin,
        keyed,
        effect,
    })
}

pub fn user() -> impl Strategy<Value = User> {
    let email = "[a-zа-я]{1,6}@[a-z]{1,3}\\.ru"
        .prop_map(|text| Email::parse(&text).expect("the strategy makes well-formed addresses"));
    (id(), email, ".{0,8}", (text(), text(), option::of(zone()), text()), time(), time(), any::<u64>())
        .prop_map(
            |(
                id,
                email,
                password_hash,
                (name, phone, geo_zone, shipping_address),
                created_at,
                updated_at,
                version,
            )| {
                User {
                    id: UserId(id),
                    email,
                    password_hash,
                    profile: Profile { name, phone, geo_zone, shipping_address },
                    created_at,
                    updated_at,
                    version: Version(version),
                }
            },
        )
}

pub fn session() -> impl Strategy<Value = Session> {
    let state = prop_oneof![
        Just(SessionState::Live),
        time().prop_map(|at| SessionState::Revoked { at }),
        (time(), id(), any::<bool>()).prop_map(|(at, into, merged)| SessionState::Closed {
            at,
            into: UserId(into),
            merged
        }),
    ];
    let details = (any::<Option<std::net::IpAddr>>(), text(), text());
    let times = (time(), time(), time());
    (id(), option::of(id()), any::<[u8; 32]>(), state, details, times, any::<u64>()).prop_map(
        |(
            id,
            user,
            hash,
            state,
            (ip_address, user_agent, device),
            (created_at, last_active, expires_at),
            version,
        )| {
            Session {
                id: SessionId(id),
                holder: user.map_or(Holder::Guest, |user| Holder::User(UserId(user))),
                token_hash: SecretHash(hash),
                state,
                ip_address,
                user_agent,
                device,
                created_at,
                last_active,
                expires_at,
                version: Version(version),
            }
        },
    )
}
