//! Checkout records on the engine, which of them are due, and which of them claimed a cart.

use fjall::Readable;
use mobimir_core::{
    checkout::Checkout,
    id::{OrderId, UserId},
    ports::StoreResult,
    time::{Timestamp, Version},
};

use crate::{
    EmbeddedStore,
    engine::{Space, Txn},
    error::{damaged, read_failed},
    records::{self, cart_claim, checkout, checkout_due},
};

impl EmbeddedStore {
    pub(crate) async fn checkout_insert(&self, checkout: Checkout) -> StoreResult<Option<Checkout>> {
        self.write(move |_, txn| {
            if let Some(stored) = txn.get(&checkout::key(checkout.order_id))? {
                return checkout::decode(checkout.order_id, &stored).map(Some);
            }
            put(txn, None, &checkout);
            Ok(None)
        })
        .await
    }

    pub(crate) async fn checkout_get(&self, id: OrderId) -> StoreResult<Option<Checkout>> {
        self.read_in_place(move |shared| {
            let found = shared.tables.get(&checkout::key(id))?;
            found.map(|bytes| checkout::decode(id, &bytes)).transpose()
        })
        .await
    }

    pub(crate) async fn checkout_update(&self, checkout: Checkout, expected: Version) -> StoreResult<bool> {
        self.write(move |_, txn| {
            let Some(stored) = txn.get(&checkout::key(checkout.order_id))? else { return Ok(false) };
            let (due_at, version) = checkout::decode_replaced(&stored)?;
            if version != expected {
                return Ok(false);
            }
            put(txn, due_at, &checkout);
            Ok(true)
        })
        .await
    }

    pub(crate) async fn checkouts_due(
        &self,
        now: Timestamp,
        is_wanted: fn(&Checkout) -> bool,
        limit: usize,
    ) -> StoreResult<Vec<Checkout>> {
        self.read(move |shared| {
            let snapshot = shared.tables.snapshot();
            let keyspace = shared.tables.keyspace(Space::Checkouts);
            let (start, end) = (checkout_due::all(), checkout_due::start_of(now));
            let mut due = Vec::new();
            for row in snapshot.range(keyspace, start.bytes..end.bytes) {
                if due.len() == limit {
                    break;
                }
                let (_, id) = checkout_due::read_key(&row.key().map_err(read_failed)?)?;
                let record = snapshot.get(keyspace, &checkout::key(id).bytes).map_err(read_failed)?;
                let record = record.ok_or_else(|| damaged(format!("checkout {id} is due but not there")))?;
                due.extend(Some(checkout::decode(id, &record)?).filter(is_wanted));
            }
            Ok(due)
        })
        .await
    }

    pub(crate) async fn cart_claim_get(&self, user: UserId) -> StoreResult<Option<OrderId>> {
        self.read_in_place(move |shared| {
            let found = shared.tables.get(&cart_claim::key(user))?;
            found.map(|bytes| cart_claim::decode(user, &bytes)).transpose()
        })
        .await
    }

    pub(crate) async fn cart_claim_set(
        &self,
        user: UserId,
        expected: Option<OrderId>,
        order: OrderId,
    ) -> StoreResult<bool> {
        self.write(move |_, txn| {
            let stored = txn.get(&cart_claim::key(user))?;
            let claim = stored.map(|bytes| cart_claim::decode(user, &bytes)).transpose()?;
            if claim == expected {
                txn.put(cart_claim::key(user), cart_claim::encode(order));
            }
            Ok(claim == expected || claim == Some(order))
        })
        .await
    }
}

fn put(txn: &mut Txn<'_>, was_due_at: Option<Timestamp>, checkout: &Checkout) {
    let id = checkout.order_id;
    if was_due_at != checkout.due_at {
        if let Some(due_at) = was_due_at {
            txn.remove(checkout_due::key(due_at, id));
        }
        if let Some(due_at) = checkout.due_at {
            txn.put(checkout_due::key(due_at, id), records::nothing());
        }
    }
    txn.put(checkout::key(id), checkout::encode(checkout));
}
