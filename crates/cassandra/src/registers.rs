//! Which partitions exist. A list that is spread over partitions (days, months, buckets) has a register of them, so that
//! its readers ask for those that exist and for no others.
//!
//! An entry is written beside the first row of its partition, and both are there before the row is acknowledged. Each
//! instance remembers what it has written, so that later rows do not write it again.

use std::fmt;

use mobimir_core::ports::StoreResult;
use quick_cache::sync::Cache;
use scylla::serialize::row::SerializeRow;
use uuid::Uuid;

use crate::{
    ConnectError, StatementKind, cql,
    link::{Link, Owed, Statement, damaged},
};

pub(crate) struct Registers {
    pub(crate) note: Statement,
    entries: Statement,
    entry: Statement,
    forget: Statement,
    noted: Cache<(List, i64), ()>,
}

/// What a register is found by. It becomes text when it is asked for: as a rule it is known to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum List {
    Whole(&'static str),
    OfId(&'static str, Uuid),
    OfNumber(&'static str, i32),
}

const NOTED_ENTRIES_MAX: usize = 65_536;

impl Registers {
    pub(crate) async fn open(link: &Link) -> Result<Self, ConnectError> {
        use StatementKind::{Read, Write};
        Ok(Self {
            note: link.prepare("register", Write, cql::REGISTER).await?,
            entries: link
                .prepare("registered", Read, "SELECT entry FROM {}.registers WHERE list = ?")
                .await?,
            entry: link
                .prepare("is_registered", Read, "SELECT entry FROM {}.registers WHERE list = ? AND entry = ?")
                .await?,
            forget: link
                .prepare(
                    "unregister",
                    Write,
                    "DELETE FROM {}.registers USING TIMESTAMP ? WHERE list = ? AND entry = ?",
                )
                .await?,
            noted: Cache::new(NOTED_ENTRIES_MAX),
        })
    }

    /// The row that has to be written as well, unless this instance has written it before.
    pub(crate) fn row(&self, list: List, entry: i64, stamp: i64) -> Option<RegisterRow> {
        if self.noted.get(&(list, entry)).is_some() { None } else { Some(RegisterRow { list, entry, stamp }) }
    }

    /// This row has been written.
    pub(crate) fn written(&self, row: &RegisterRow) {
        self.noted.insert((row.list, row.entry), ());
    }

    /// Registers an entry by itself, unless this instance has done so before.
    pub(crate) async fn ensure(&self, link: &Link, list: List, entry: i64, owed: Owed) -> StoreResult<()> {
        let Some(row) = self.row(list, entry, link.stamps().next()) else { return Ok(()) };
        link.write(&self.note, row.values(), owed).await?;
        self.written(&row);
        Ok(())
    }

    /// Whether an entry is there. Where it is not, this instance no longer believes that it has written it, and whoever writes the
    /// partition's rows again registers it again.
    pub(crate) async fn has(&self, link: &Link, list: List, entry: i64) -> StoreResult<bool> {
        let is_there = link.read(&self.entry, (list.to_string(), entry)).await?.rows_num() > 0;
        if !is_there {
            self.noted.remove(&(list, entry));
        }
        Ok(is_there)
    }

    /// Reads a list from all replicas, which repairs those that lack something.
    pub(crate) async fn settle(&self, link: &Link, list: List) -> StoreResult<()> {
        link.read_of_all_replicas(&self.entries, (list.to_string(),)).await
    }

    /// Smallest first.
    pub(crate) async fn entries(&self, link: &Link, list: List) -> StoreResult<Vec<i64>> {
        let rows = link.read(&self.entries, (list.to_string(),)).await?;
        let entries = rows.rows::<(i64,)>().map_err(|error| damaged("a register", error))?;
        entries.map(|row| row.map(|(entry,)| entry).map_err(|error| damaged("a register", error))).collect()
    }

    /// Forgets a partition that was seen to be empty, unless it was noted again since `seen_at`.
    pub(crate) async fn forget(&self, link: &Link, list: List, entry: i64, seen_at: i64) -> StoreResult<()> {
        self.noted.remove(&(list, entry));
        link.write(&self.forget, (seen_at, list.to_string(), entry), Owed(Vec::new())).await
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterRow {
    pub(crate) list: List,
    pub(crate) entry: i64,
    pub(crate) stamp: i64,
}

impl RegisterRow {
    pub(crate) fn values(&self) -> impl SerializeRow + '_ {
        (self.list.to_string(), self.entry, self.stamp)
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(name) => f.write_str(name),
            Self::OfId(name, id) => write!(f, "{name}/{id}"),
            Self::OfNumber(name, number) => write!(f, "{name}/{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever changes this loses all registers that are stored.
    #[test]
    fn lists_are_found_where_they_were_written() {
        let list = List::OfId("months", Uuid::from_u128(7));
        assert_eq!(list.to_string(), "months/00000000-0000-0000-0000-000000000007");
        assert_eq!(List::OfNumber("buckets", 20_411).to_string(), "buckets/20411");
        assert_eq!(List::Whole("moves").to_string(), "moves");
    }
}
