//! A cart, as a migration sees it.

use std::sync::Arc;

use fjall::{Readable, Snapshot};
use mobimir_core::{
    cart::Owner,
    moving::{Facts, WholeCart},
    ports::StoreResult,
};

use super::{CartState, listing};
use crate::{
    engine::{Key, KeyReader, Space, Table, Txn},
    error::read_failed,
    moving::Stored,
    records::{
        self,
        cart::{self as cart_row, CartTimes},
        cart_change,
        expiry::{self, Expiring},
        unmirrored,
    },
    store::Shared,
};

impl Stored for WholeCart {
    const TABLES: &'static [(&'static str, Table)] = &[("carts", Table::Cart)];
    const NAMES: &'static [&'static str] = &["carts"];
    const SCANNED: usize = 1;
    const MARKS: Table = Table::UnmirroredCart;

    fn mark_key(owner: Owner) -> Key {
        unmirrored::cart_key(owner)
    }

    fn read_mark_key(bytes: &[u8]) -> StoreResult<Owner> {
        unmirrored::read_cart_key(bytes)
    }

    fn row_key(owner: Owner) -> Key {
        cart_row::key(owner)
    }

    fn read_key(_table: Table, bytes: &[u8]) -> StoreResult<Owner> {
        KeyReader::new(Table::Cart, bytes)?.owner()
    }

    fn read(shared: &Shared, snapshot: &Snapshot, owner: Owner) -> StoreResult<Option<Self>> {
        let keyspace = shared.tables.keyspace(Space::Carts);
        let times = snapshot.get(keyspace, &cart_row::key(owner).bytes).map_err(read_failed)?;
        let Some(times) = times else { return Ok(None) };
        let rows = snapshot.prefix(keyspace, &cart_change::packed_key(owner).bytes).map(|row| {
            let (key, value) = row.into_inner().map_err(read_failed)?;
            cart_change::decode(&key, &value)
        });
        let state = CartState::decode(&times, rows)?;
        Ok(Some(Self { owner, cart: state.stored(), version: state.times.version }))
    }

    fn put(self, shared: &Shared, txn: &mut Txn<'_>) -> StoreResult<()> {
        let Self { owner, cart, version } = self;
        let stored = shared.cart_to_change(txn, owner)?;
        if let Some(stored) = stored {
            if stored.times.version >= version {
                return Ok(());
            }
            shared.remove_cart(txn, owner, &stored)?;
        }
        let (created_at, updated_at, expires_at) = (cart.created_at, cart.updated_at, cart.expires_at);
        let mut state = CartState::without_changes(CartTimes { created_at, updated_at, expires_at, version });
        for change in cart.changes {
            state.add(txn, owner, change);
        }
        txn.put(expiry::key(expires_at, Expiring::Cart(owner)), records::nothing());
        listing::put_listed(txn, owner, &mut state);
        shared.carts.stage(txn.job(), owner, Some(Arc::new(state)));
        Ok(())
    }

    /// The list of touched carts follows the carts by itself.
    fn entries(&self) -> Vec<(&'static str, Key)> {
        Vec::new()
    }

    fn told(_table: Table, _key: &[u8], _value: &[u8]) -> StoreResult<Facts> {
        Ok(Facts::default())
    }

    fn remove(shared: &Shared, txn: &mut Txn<'_>, owner: Owner) -> StoreResult<()> {
        match shared.cart_to_change(txn, owner)? {
            Some(stored) => shared.remove_cart(txn, owner, &stored),
            None => Ok(()),
        }
    }
}
