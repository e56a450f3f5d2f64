//! A crash after every step of splitting, borrowing and putting together: another instance goes on, and everything adds up.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
    mpsc::sync_channel,
};

use mobimir_core::{
    policy::Entity,
    ports::{ProductStore, StoreError},
    product::{Decision, HoldOutcome, Product, StockChange, Verdict, ZoneStock},
};
use mobimir_mongodb::{Deployment, MongoProducts, StripeFaults, StripeStep};
use mongodb::bson::{Document, Uuid, doc};

use super::{lost, stored, stripes_of};
use crate::{
    products::{block_on, msk, now, phone, sale},
    support::{fresh, shared},
};

const UNITS: u64 = 12;
const STRIPES: u16 = 3;

/// Does a day's work with a product that is split, and stops after the step for the `nth` time; says whether it came to that.
async fn stopped(deployment: Arc<Deployment>, phone: &Product, step: StripeStep, nth: u32) -> bool {
    let seen = AtomicU32::new(0);
    let stops = move |reached| reached == step && seen.fetch_add(1, Ordering::Relaxed) == nth;
    let products = MongoProducts::new(deployment).with_faults(StripeFaults::planned(stops));
    let work = async || -> Result<(), StoreError> {
        products.stripe(phone.id, STRIPES, now()).await?;
        // More than any stripe has.
        let hold = sale(UNITS - 1);
        assert_eq!(products.hold(phone.id, hold, now()).await?, HoldOutcome::Held);
        assert!(products.settle(phone.id, hold.order, lost(), now()).await?);
        for _ in 0..3 {
            assert_eq!(products.hold(phone.id, sale(1), now()).await?, HoldOutcome::Held);
        }
        products.stripe(phone.id, 1, now()).await.map(|_| ())
    };
    work().await.is_err()
}

#[test]
fn after_a_crash_at_any_step_everything_adds_up() {
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let deployment = fresh.deployment.clone();
        for step in StripeStep::ALL {
            let mut nth = 0;
            loop {
                let phone = phone(UNITS);
                MongoProducts::new(deployment.clone()).insert(vec![phone.clone()]).await.unwrap();
                let came_to_it = stopped(deployment.clone(), &phone, step, nth).await;
                goes_on(&deployment, &phone).await;
                if !came_to_it {
                    break;
                }
                nth += 1;
            }
            assert!(nth > 0, "{step:?} was never reached");
        }
    });
}

/// It stands still with units in its hands, somebody else delivers them, and then it goes on.
#[test]
fn one_who_is_late_delivers_nothing_twice() {
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let deployment = fresh.deployment.clone();
        let products = MongoProducts::new(deployment.clone());
        let phone = phone(UNITS);
        products.insert(vec![phone.clone()]).await.unwrap();
        products.stripe(phone.id, STRIPES, now()).await.unwrap();
        let (taken, is_taken) = sync_channel(1);
        let (go_on, may_go_on) = sync_channel(1);
        let may_go_on = Mutex::new(Some(may_go_on));
        let waits = move |reached| {
            if reached == StripeStep::UnitsTaken
                && let Some(may_go_on) = may_go_on.lock().unwrap().take()
            {
                taken.send(()).unwrap();
                tokio::task::block_in_place(|| may_go_on.recv()).unwrap();
            }
            false
        };
        let late = MongoProducts::new(deployment.clone()).with_faults(StripeFaults::planned(waits));
        let id = phone.id;
        let late = tokio::spawn(async move { late.hold(id, sale(UNITS - 1), now()).await });
        tokio::task::block_in_place(|| is_taken.recv()).unwrap();
        // What is on its way is seen, and sold.
        assert_eq!(stored(&products, &phone).await.available_in(msk()), UNITS);
        let all = sale(UNITS);
        assert_eq!(products.hold(phone.id, all, now()).await.unwrap(), HoldOutcome::Held);
        assert!(products.settle(phone.id, all.order, lost(), now()).await.unwrap());
        go_on.send(()).unwrap();
        assert_eq!(late.await.unwrap().unwrap(), HoldOutcome::Held);
        let stock = stored(&products, &phone).await.stock[&msk()];
        assert_eq!(stock, ZoneStock { received: UNITS, available: 1, reserved: UNITS - 1, sold: 0 });
    });
}

/// Whoever closes by an outdated view may seal a stripe before everything sent there has come. It goes back then.
#[test]
fn what_comes_to_a_sealed_stripe_goes_back() {
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let deployment = fresh.deployment.clone();
        let stops = |reached| reached == StripeStep::UnitsTaken;
        let stops = || MongoProducts::new(deployment.clone()).with_faults(StripeFaults::planned(stops));
        let stripes = deployment.database().collection::<Document>("product_stripes");
        let products = MongoProducts::new(deployment.clone());
        let mut sent_to_a_stripe = false;
        while !sent_to_a_stripe {
            let phone = phone(UNITS);
            products.insert(vec![phone.clone()]).await.unwrap();
            products.stripe(phone.id, STRIPES, now()).await.unwrap();
            stops().hold(phone.id, sale(UNITS), now()).await.unwrap_err();
            let id = Uuid::from_bytes(*phone.id.as_bytes());
            let close = doc! { "$set": { "stripes.split.closing": true } };
            let whole = deployment.database().collection::<Document>("products");
            whole.update_one(doc! { "_id": id }, close).await.unwrap();
            // The note is in the product or in a stripe, and names where it goes.
            for n in 1..i32::from(STRIPES) {
                let out = format!("transfers.out.s{n}");
                let noted = doc! { &out: { "$exists": true } };
                let in_product = doc! { "_id": id, "$or": [noted.clone()] };
                let in_stripe = doc! { "product": id, "$or": [noted] };
                if whole.find_one(in_product).await.unwrap().is_none()
                    && stripes.find_one(in_stripe).await.unwrap().is_none()
                {
                    continue;
                }
                sent_to_a_stripe = true;
                let seal = doc! { "$set": { "closing": true, "sealed": true } };
                stripes.update_one(doc! { "product": id, "n": n }, seal).await.unwrap();
            }
            goes_on(&deployment, &phone).await;
        }
    });
}

/// Somebody else sells what is left, then puts it together.
async fn goes_on(deployment: &Arc<Deployment>, phone: &Product) {
    let products = MongoProducts::new(deployment.clone());
    let left = stored(&products, phone).await;
    let stock = left.stock[&msk()];
    assert_eq!((stock.received, stock.sold), (UNITS, 0));
    for hold in &left.holds {
        assert!(products.settle(phone.id, hold.order, lost(), now()).await.unwrap(), "{hold:?}");
    }
    // All of it to one buyer, whose home may be anywhere.
    let all = sale(UNITS);
    assert_eq!(products.hold(phone.id, all, now()).await.unwrap(), HoldOutcome::Held, "{left:?}");
    let short = HoldOutcome::Short { available: 0 };
    assert_eq!(products.hold(phone.id, sale(1), now()).await.unwrap(), short);
    let won = Verdict { sale: Decision::Won(all.attempt), cancellation: Decision::Undecided };
    assert!(products.settle(phone.id, all.order, won, now()).await.unwrap());
    products.tend_stripes(&[], now()).await.unwrap();
    let changed = products.change_stock(phone.id, msk(), StockChange::Delta(5), now()).await.unwrap();
    let sold_out = ZoneStock { received: UNITS + 5, available: 5, reserved: 0, sold: UNITS };
    assert_eq!(changed, mobimir_core::product::StockOutcome::Changed(sold_out));
    products.stripe(phone.id, 0, now()).await.unwrap();
    assert_eq!(stored(&products, phone).await.stock[&msk()], sold_out);
    products.tend_stripes(&[], now().plus_ms(7_200_000)).await.unwrap();
    assert_eq!(stripes_of(deployment, phone).await, 0, "nothing is left behind");
}
