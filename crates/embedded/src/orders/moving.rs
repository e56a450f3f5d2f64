//! An order and its history, as a migration sees them.

use fjall::{Readable, Snapshot};
use mobimir_core::{
    id::OrderId,
    moving::{Facts, Whole, WholeOrder},
    order::OrderPosition,
    ports::StoreResult,
};

use crate::{
    engine::{Key, KeyReader, Space, Table, Txn},
    error::read_failed,
    moving::Stored,
    records::{
        self,
        order::{self, StoredOrder},
        order_by_day, order_by_user, order_history, unmirrored,
    },
    store::Shared,
};

impl Stored for WholeOrder {
    const TABLES: &'static [(&'static str, Table)] = &[
        ("orders", Table::Order),
        ("orders_by_user", Table::OrderByUser),
        ("orders_by_day", Table::OrderByDay),
    ];
    const NAMES: &'static [&'static str] = &["orders", "orders_by_user", "orders_by_day"];
    const SCANNED: usize = 1;
    const MARKS: Table = Table::UnmirroredOrder;

    fn mark_key(id: OrderId) -> Key {
        unmirrored::order_key(id)
    }

    fn read_mark_key(bytes: &[u8]) -> StoreResult<OrderId> {
        unmirrored::read_order_key(bytes)
    }

    fn row_key(id: OrderId) -> Key {
        order::key(id)
    }

    fn read_key(table: Table, bytes: &[u8]) -> StoreResult<OrderId> {
        match table {
            Table::OrderByUser => order_by_user::read_key(bytes).map(|position| position.order_id),
            Table::OrderByDay => order_by_day::read_key(bytes).map(|position| position.order_id),
            _ => KeyReader::new(Table::Order, bytes)?.uuid().map(OrderId),
        }
    }

    fn read(shared: &Shared, snapshot: &Snapshot, id: OrderId) -> StoreResult<Option<Self>> {
        let keyspace = shared.tables.keyspace(Space::Orders);
        let found = snapshot.get(keyspace, &order::key(id).bytes).map_err(read_failed)?;
        let Some(bytes) = found else { return Ok(None) };
        let StoredOrder { order, .. } = order::decode(id, &bytes)?;
        let lines = snapshot.prefix(keyspace, &order_history::all(id).bytes);
        let history: StoreResult<Vec<_>> =
            lines.map(|line| order_history::decode(&line.value().map_err(read_failed)?)).collect();
        Ok(Some(Self { order, history: history? }))
    }

    fn put(self, _shared: &Shared, txn: &mut Txn<'_>) -> StoreResult<()> {
        let id = self.order.id;
        let stored = txn.get(&order::key(id))?.map(|bytes| order::decode(id, &bytes)).transpose()?;
        if stored.is_some_and(|stored| stored.order.version >= self.version()) {
            // The indexes are changed together with the order, so they are right.
            return Ok(());
        }
        let mut lines = 0;
        for change in &self.history {
            txn.put(order_history::key(id, lines), order_history::encode(change));
            lines += 1;
        }
        txn.put(order_by_user::key(self.order.user_id, self.order.position()), records::nothing());
        super::put(txn, &StoredOrder { order: self.order, history_lines: lines });
        Ok(())
    }

    fn entries(&self) -> Vec<(&'static str, Key)> {
        let (order, position) = (&self.order, self.order.position());
        vec![
            ("orders_by_user", order_by_user::key(order.user_id, position)),
            ("orders_by_day", order_by_day::key(order.day(), position)),
        ]
    }

    fn told(table: Table, key: &[u8], value: &[u8]) -> StoreResult<Facts> {
        let created_at =
            |position: OrderPosition| Facts::new([("created_at", position.created_at.to_string())]);
        match table {
            Table::OrderByDay => {
                let traits = order_by_day::decode(value)?;
                Ok(Facts::new([
                    ("created_at", order_by_day::read_key(key)?.created_at.to_string()),
                    ("status", traits.status.to_string()),
                    ("geo_zone", traits.zone.to_string()),
                ]))
            }
            _ => order_by_user::read_key(key).map(created_at),
        }
    }

    fn remove(_shared: &Shared, txn: &mut Txn<'_>, id: OrderId) -> StoreResult<()> {
        let lines = order_history::all(id);
        for (bytes, _) in txn.under(&lines)? {
            txn.remove(Key { space: lines.space, bytes });
        }
        txn.remove(order::key(id));
        Ok(())
    }
}
