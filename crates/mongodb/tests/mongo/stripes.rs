//! Stock that is split over several documents means the same as stock that is not, whatever crashes in between.

mod chance;
mod crashes;
mod sale;

use std::sync::Arc;

use mobimir_core::{
    policy::{Entity, Policy},
    ports::{ProductStore, Stores},
    product::{Decision, HoldOutcome, Product, StockChange, StockOutcome, Verdict, ZoneStock},
};
use mobimir_mongodb::{Deployment, MongoProducts};
use mobimir_testkit::{conformance, model::ModelStore};
use mongodb::bson::{Document, doc};

use crate::{
    products::{block_on, msk, now, phone, sale},
    support::{Kept, fresh, options, shared},
};

#[test]
fn split_products_are_what_the_suite_says() {
    let shared = shared();
    let kept = Kept::default();
    let factory = || async {
        let deployment = kept.keep(fresh(shared.mongo, &[Entity::Products]).await);
        let products = MongoProducts::new(deployment).with_stripes_of_new(4);
        Stores { products: Arc::new(products), ..ModelStore::stores() }
    };
    conformance::products(&factory, options(6));
}

#[test]
fn the_last_unit_is_sold_to_whoever_asks_for_it() {
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let products = MongoProducts::new(fresh.deployment.clone());
        let phone = phone(17);
        products.insert(vec![phone.clone()]).await.unwrap();
        assert!(products.stripe(phone.id, 16, now()).await.unwrap());
        for units in (1..=17).rev() {
            // Whatever its home, an order can have all that there is, and not one more.
            for quantity in [units + 1, units] {
                let hold = sale(quantity);
                let held = products.hold(phone.id, hold, now()).await.unwrap();
                if quantity > units {
                    assert_eq!(held, HoldOutcome::Short { available: units });
                    continue;
                }
                assert_eq!(held, HoldOutcome::Held);
                assert_eq!(products.hold(phone.id, hold, now()).await.unwrap(), HoldOutcome::AlreadyHeld);
                assert!(products.settle(phone.id, hold.order, lost(), now()).await.unwrap());
                assert!(!products.settle(phone.id, hold.order, lost(), now()).await.unwrap());
            }
            let bought = sale(1);
            assert_eq!(products.hold(phone.id, bought, now()).await.unwrap(), HoldOutcome::Held);
            let won = Verdict { sale: Decision::Won(bought.attempt), cancellation: Decision::Undecided };
            assert!(products.settle(phone.id, bought.order, won, now()).await.unwrap());
        }
        let stored = stored(&products, &phone).await;
        assert_eq!(stored.stock[&msk()], ZoneStock { received: 17, available: 0, reserved: 0, sold: 17 });
    });
}

#[test]
fn an_operator_changes_the_stock_of_a_split_product() {
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let deployment = fresh.deployment.clone();
        let products = MongoProducts::new(deployment.clone());
        let phone = phone(100);
        products.insert(vec![phone.clone()]).await.unwrap();
        products.stripe(phone.id, 8, now()).await.unwrap();
        let held = sale(30);
        products.hold(phone.id, held, now()).await.unwrap();
        let change = async |change| products.change_stock(phone.id, msk(), change, now()).await.unwrap();
        let stock = ZoneStock { received: 50, available: 20, reserved: 30, sold: 0 };
        assert_eq!(change(StockChange::Delta(-50)).await, StockOutcome::Changed(stock));
        assert_eq!(change(StockChange::Delta(-21)).await, StockOutcome::Insufficient { available: 20 });
        let stock = ZoneStock { received: 37, available: 7, ..stock };
        assert_eq!(change(StockChange::SetAvailable(7)).await, StockOutcome::Changed(stock));
        assert_eq!(stripes_of(&deployment, &phone).await, 7, "it is still split");
        assert!(products.settle(phone.id, held.order, lost(), now()).await.unwrap());
        let stored = stored(&products, &phone).await;
        assert_eq!(stored.available_in(msk()), 37);
    });
}

#[test]
fn the_policy_splits_what_nobody_said_otherwise_of() {
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let deployment = fresh.deployment.clone();
        let products = MongoProducts::new(deployment.clone());
        let (hot, by_hand) = (phone(10), phone(10));
        products.insert(vec![hot.clone(), by_hand.clone()]).await.unwrap();
        products.stripe(by_hand.id, 1, now()).await.unwrap();
        let text = format!(
            "[products]\nhome = \"mongodb\"\nmongodb = {{ stripes = {{ count = 3, products = [\"{}\", \"{}\"] }} }}",
            hot.id, by_hand.id
        );
        let policy = Policy::parse(&text, "x.toml").unwrap();
        products.tend_stripes(&policy.striped_products(), now()).await.unwrap();
        assert_eq!(stripes_of(&deployment, &hot).await, 2);
        assert_eq!(stripes_of(&deployment, &by_hand).await, 0);
        // Another policy, and one that does not name it.
        products.tend_stripes(&[(hot.id, 5)], now()).await.unwrap();
        assert_eq!(stripes_of(&deployment, &hot).await, 4);
        products.tend_stripes(&[], now()).await.unwrap();
        assert_eq!(stripes_of(&deployment, &hot).await, 0);
        products.tend_stripes(&policy.striped_products(), now()).await.unwrap();
        assert_eq!(stripes_of(&deployment, &hot).await, 2);
        // What somebody said stands.
        products.stripe(hot.id, 0, now()).await.unwrap();
        products.tend_stripes(&policy.striped_products(), now()).await.unwrap();
        assert_eq!(stripes_of(&deployment, &hot).await, 0);
        assert_eq!(stored(&products, &hot).await.available_in(msk()), 10);
    });
}

fn lost() -> Verdict {
    Verdict { sale: Decision::Lost, cancellation: Decision::Undecided }
}

/// As a reader sees it, its books balanced.
async fn stored(products: &MongoProducts, product: &Product) -> Product {
    let stored = products.get(product.id).await.unwrap().unwrap();
    assert!(stored.books_balance(), "{stored:?}");
    Product::clone(&stored)
}

/// How many documents it has beside its own.
async fn stripes_of(deployment: &Deployment, product: &Product) -> u64 {
    let id = mongodb::bson::Uuid::from_bytes(*product.id.as_bytes());
    let stripes = deployment.database().collection::<Document>("product_stripes");
    stripes.count_documents(doc! { "product": id }).await.unwrap()
}
