//! Puts: the newest of many, and for how long.

use mobimir_core::{
    id::{self, SessionId, UserId},
    moving::{WholeOrder, WholeSession},
    order::Order,
    policy::Entity,
    session::Session,
    time::{Clock, SystemClock, Timestamp, Version},
};
use mobimir_mongodb::{MongoOrders, MongoSessions};
use mongodb::bson::{Document, doc};

use crate::{
    orders::order,
    sessions::{session, token},
    support,
};

pub(crate) fn with_token(session: Session) -> [WholeSession; 2] {
    let token = token(&session);
    [WholeSession::Session(session), WholeSession::Token { token, used: false }]
}

/// An order that is not there comes in many versions at once. Who is second to make the document is told that it is there, and
/// may still have the newer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_make_the_same_document_the_newest_stays() {
    const ORDERS: usize = 60;
    const VERSIONS: u64 = 16;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Orders]).await;
    let (side, now) = (MongoOrders::side(fresh.deployment.clone()), SystemClock.now());
    let user = UserId(id::fresh(now));
    for n in 0..ORDERS {
        let order = order(user, &n.to_string(), now);
        let tasks: Vec<_> = (1..=VERSIONS)
            .map(|version| {
                let order = Order { version: Version(version), ..order.clone() };
                let whole = WholeOrder { history: vec![order.first_change()], order };
                let moving = side.moving.clone();
                tokio::spawn(async move { moving.put(vec![whole], now).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let stored = side.moving.whole(order.id).await.unwrap().whole.unwrap();
        assert_eq!(stored.order.version, Version(VERSIONS), "of the order {n}");
    }
}

/// What is left of an entity's life goes along, by the server's clock, wherever in time its owner lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_lasts_as_long_as_it_has_left() {
    const LEFT_S: i64 = 600;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Sessions]).await;
    let side = MongoSessions::side(fresh.deployment.clone());
    let started = SystemClock.now();
    let long_ago = Timestamp::parse("2001-09-09T01:46:40Z").unwrap();
    for began_at in [started, long_ago] {
        let made = Session { id: SessionId(id::fresh(began_at)), ..session(began_at) };
        let now = made.expires_at.plus_s(-LEFT_S);
        side.moving.put(with_token(made).to_vec(), now).await.unwrap();
    }
    for collection in ["sessions", "refresh_tokens"] {
        let stored = fresh.deployment.database().collection::<Document>(collection);
        let mut cursor = stored.find(doc! {}).await.unwrap();
        let mut met = 0;
        while cursor.advance().await.unwrap() {
            let stored: Document = cursor.deserialize_current().unwrap();
            let gone_at = stored.get_datetime("gone_at").unwrap().timestamp_millis();
            let lasts_s = (gone_at - started.as_millis()) / 1_000;
            // A minute more for clocks that differ, and as long as this test may take.
            assert!((LEFT_S..LEFT_S + 60 + 120).contains(&lasts_s), "{lasts_s} s: {stored}");
            met += 1;
        }
        assert_eq!(met, 2);
    }
}
