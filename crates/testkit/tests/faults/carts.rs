use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use mobimir_core::{
    cart::{self, CartChange, CartPosition, Effect, Owner, StoredCart},
    id::{ChangeId, fresh},
    page::Page,
    ports::{CartStore, StoreResult, Stores},
    time::Timestamp,
};
use mobimir_testkit::conformance;
use tokio::sync::Mutex;

use crate::{Door, OPTIONS, faulty, must_be_found};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    LosesASecondChangeInTheSameMillisecond,
    LosesChangesThatRace,
    CountsRepetitions,
    ClearsWhatNobodySaw,
    ShowsExpiredCarts,
    ListsExpiredCarts,
    GoesOnWithAnExpiredCart,
    SkipsTheFirstOfAPage,
    ListsLessThanUntouched,
}

#[test]
fn carts() {
    use Fault::*;
    for fault in [
        LosesASecondChangeInTheSameMillisecond,
        LosesChangesThatRace,
        CountsRepetitions,
        ClearsWhatNobodySaw,
        ShowsExpiredCarts,
        ListsExpiredCarts,
        GoesOnWithAnExpiredCart,
        SkipsTheFirstOfAPage,
        ListsLessThanUntouched,
    ] {
        let stores = || async move {
            faulty(|model| {
                let (inner, last) = (model.carts.clone(), Mutex::default());
                Stores {
                    carts: Arc::new(Faulty { fault, inner, last, door: Door::default() }),
                    ..model.clone()
                }
            })
        };
        must_be_found(&fault, || conformance::carts(&stores, OPTIONS));
    }
}

struct Faulty {
    fault: Fault,
    inner: Arc<dyn CartStore>,
    last: Mutex<BTreeMap<Owner, Timestamp>>,
    door: Door,
}

const LONG_AGO: Timestamp = Timestamp::from_millis(0);

#[async_trait]
impl CartStore for Faulty {
    async fn append(
        &self,
        owner: Owner,
        mut changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut at = now;
        match self.fault {
            Fault::LosesASecondChangeInTheSameMillisecond => {
                let last = self.last.lock().await.insert(owner, now);
                if last == Some(now) {
                    return Ok(());
                }
            }
            Fault::LosesChangesThatRace => {
                let is_first = self.door.enter().await;
                self.door.leave();
                if !is_first {
                    return Ok(());
                }
            }
            Fault::CountsRepetitions => {
                let stored = self.inner.read(owner, now).await?;
                for change in &mut changes {
                    if stored.as_ref().is_some_and(|cart| cart::is_known(&cart.changes, change.id)) {
                        change.id = ChangeId(fresh(now));
                    }
                }
            }
            Fault::ClearsWhatNobodySaw => {
                let stored = self.inner.read(owner, now).await?;
                for change in &mut changes {
                    if let (Effect::Cover { covers, .. }, Some(cart)) = (&mut change.effect, &stored) {
                        covers.extend(cart.changes.iter().map(|change| change.id));
                    }
                }
            }
            Fault::GoesOnWithAnExpiredCart => {
                if let Some(cart) = self.inner.read(owner, LONG_AGO).await? {
                    at = now.min(cart.expires_at.plus_ms(-1));
                }
            }
            _ => {}
        }
        self.inner.append(owner, changes, expires_at, at).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let now = if self.fault == Fault::ShowsExpiredCarts { LONG_AGO } else { now };
        self.inner.read(owner, now).await
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        let now = if self.fault == Fault::ListsExpiredCarts { LONG_AGO } else { now };
        let less = i64::from(self.fault == Fault::ListsLessThanUntouched);
        let since = untouched_since.plus_ms(-less);
        let mut page = self.inner.untouched(since, after, limit, now).await?;
        if self.fault == Fault::SkipsTheFirstOfAPage && after.is_some() && !page.items.is_empty() {
            page.items.remove(0);
        }
        Ok(page)
    }
}
