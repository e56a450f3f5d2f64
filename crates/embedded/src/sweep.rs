//! Removes what has expired. Reads refuse it anyway; this gives its room back.

use fjall::Slice;
use mobimir_core::{ports::StoreResult, time::Timestamp};

use crate::{
    EmbeddedStore,
    engine::{Key, Space, Txn},
    error::read_failed,
    records::{
        self,
        expiry::{self, Expiring},
    },
    sessions,
    store::Shared,
};

/// Entries that one write handles, so that shoppers' writes do not wait long behind it.
const SWEEP_ENTRIES_PER_WRITE_MAX: usize = 64;

impl EmbeddedStore {
    /// Looks at up to `limit` things that were to expire by `now`: removes those that have, and notes anew when the
    /// others will. Returns how many it looked at; fewer than `limit` means that nothing more is due. May be called
    /// at any time, by anybody, any number of times.
    pub async fn sweep(&self, now: Timestamp, limit: usize) -> StoreResult<usize> {
        let due = self.read(move |shared| due(shared, now, limit)).await?;
        let looked_at = due.len();
        for entries in due.chunks(SWEEP_ENTRIES_PER_WRITE_MAX) {
            let entries = entries.to_vec();
            self.write(move |shared, txn| {
                entries.into_iter().try_for_each(|entry| expire(shared, txn, entry, now))
            })
            .await?;
        }
        Ok(looked_at)
    }
}

fn due(shared: &Shared, now: Timestamp, limit: usize) -> StoreResult<Vec<Slice>> {
    let (start, end) = (expiry::all(), expiry::end_of(now));
    let rows = shared.tables.keyspace(Space::Sessions).range(start.bytes..end.bytes);
    rows.take(limit).map(|row| row.key().map_err(read_failed)).collect()
}

fn expire(shared: &Shared, txn: &mut Txn<'_>, entry: Slice, now: Timestamp) -> StoreResult<()> {
    let (_, what) = expiry::read_key(&entry)?;
    let lasts_until = match what {
        Expiring::Cart(owner) => shared.expire_cart(txn, owner, now)?,
        Expiring::Session(id) => shared.expire_session(txn, id, now)?,
        Expiring::RefreshToken(hash) => sessions::expire_token(txn, hash, now)?,
    };
    txn.remove(Key { space: Space::Sessions, bytes: entry });
    if let Some(expires_at) = lasts_until {
        txn.put(expiry::key(expires_at, what), records::nothing());
    }
    Ok(())
}
