//! A crash after every step of splitting, borrowing and putting together: another instance goes on, and everything adds up.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use mobimir_core::{
    policy::Entity,
    ports::{ProductStore, StoreError},
    product::{Decision, HoldOutcome, Product, StockChange, Verdict, ZoneStock},
};
use mobimir_mongodb::{Deployment, MongoProducts, StripeFaults, StripeStep};

use super::{lost, stored, stripes_of};
use crate::{
    products::{msk, now, phone, sale},
    support::{block_on, fresh, shared},
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
        let deployment = fresh(shared.set, &[Entity::Products]).await;
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
