//! Every row of the target, to find those that nobody should have written.

use futures_util::stream::{self, StreamExt};
use mobimir_core::{
    moving::{Place, Row, Whole},
    notes::Expected,
    ports::{StoreError, StoreResult},
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{
    COPIED_AFTER_GENERATIONS, Comparison, Difference, GENERATION_PAUSE, GENERATIONS_MAX, Kind,
    LOOKED_AT_ONCE, Purpose, Running, STEP_ENTITIES, differences, fields, is_unsettled, is_written,
};
use crate::{
    backfill::put_or_set_aside,
    job::{decode, encode},
};

/// Of a key that may be anything.
const NAMELESS_CHARS_MAX: usize = 200;

/// How far a table has been looked through.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LookedAt {
    after: Option<String>,
    pub(super) is_done: bool,
    pub(super) rows: u64,
    pub(super) mended: u64,
}

/// A row that should not be there, or not like this, and that nobody is writing.
struct Stray<W: Whole> {
    difference: Difference,
    row: Row<W::Key>,
    /// What the source says of it.
    whole: Option<W>,
}

impl<W: Whole> Running<W> {
    /// Looks at every row of a table that has not been looked at.
    pub(super) async fn look_for_strays(&self, table: &'static str) -> StoreResult<LookedAt> {
        let Comparison { notes, purpose, number, target, .. } = &self.comparison;
        let name = format!("{}{table}", prefix(*purpose, *number));
        let stored = notes.get::<LookedAt>(&name).await?;
        let mut looked_at = stored.map(|read| read.value).unwrap_or_default();
        while !looked_at.is_done && !self.progress.is_stopped() {
            let after: Option<Place> = looked_at.after.as_deref().and_then(decode);
            let page = target.rows(table, after.as_ref(), STEP_ENTITIES).await?;
            let met = (page.items.len() + page.nameless.len()) as u64;
            looked_at.rows += met;
            let mut looks = stream::iter(page.items)
                .map(|row| self.comparison.look_at_row(table, row, after.as_ref()))
                .buffer_unordered(LOOKED_AT_ONCE);
            while let Some(stray) = looks.next().await {
                let (left, mended) = stray?;
                looked_at.mended += mended;
                self.note(left.as_slice()).await?;
            }
            drop(looks);
            if self.comparison.is_forward {
                self.note(&page.nameless.iter().map(|key| nameless(table, key)).collect::<Vec<_>>()).await?;
            }
            looked_at.is_done = page.next.is_none();
            looked_at.after = page.next.as_ref().map(encode);
            notes.put(&name, Expected::Anything, &looked_at).await?;
            self.give_way(met).await;
        }
        Ok(looked_at)
    }
}

/// Something that is no entity. The source cannot be asked for it, and no repair removes it: people have to look.
fn nameless(table: &str, key: &str) -> Difference {
    let key = key.chars().take(NAMELESS_CHARS_MAX).collect();
    Difference { key, table: table.to_owned(), kind: Kind::Extra, fields: Vec::new() }
}

/// Where it is noted how far the tables have been looked through.
pub(super) fn prefix(purpose: Purpose, number: u64) -> String {
    format!("/rows/{}/{number:020}/", purpose.as_str())
}

impl<W: Whole> Comparison<W> {
    /// What is wrong with a row of the page behind a place, and how much of it was mended.
    async fn look_at_row(
        &self,
        table: &'static str,
        row: Row<W::Key>,
        behind: Option<&Place>,
    ) -> StoreResult<(Option<Difference>, u64)> {
        let Some(stray) = self.stray(table, row, behind).await? else { return Ok((None, 0)) };
        if self.mends() && self.mend_row(table, &stray).await? {
            return Ok((None, 1));
        }
        Ok((Some(stray.difference), 0))
    }

    /// Whether a row stands for something that the source does not have, or says something else than it does, and goes on
    /// doing so.
    async fn stray(
        &self,
        table: &'static str,
        mut row: Row<W::Key>,
        behind: Option<&Place>,
    ) -> StoreResult<Option<Stray<W>>> {
        let mut last_seen = None;
        for generation in 0..GENERATIONS_MAX {
            let Some(before) = self.in_source(row.key).await? else { return Ok(None) };
            if generation >= COPIED_AFTER_GENERATIONS
                && self.is_equal_when_copied(&before, Some(table)).await?
            {
                return Ok(None);
            }
            if generation > 0 {
                // As it is by now, and between two looks at the source.
                let page = self.target.rows(table, behind, 2 * STEP_ENTITIES).await?;
                let is_it = |again: &Row<W::Key>| again.key == row.key && again.place == row.place;
                match page.items.into_iter().find(is_it) {
                    Some(again) => row = again,
                    None => return Ok(None),
                }
            }
            let (kind, fields) = match &before.whole {
                Some(whole) => (Kind::Different, fields(&whole.facts(), &row.facts)),
                None => (Kind::Extra, Vec::new()),
            };
            let is_right = kind == Kind::Different && fields.is_empty();
            if is_right || !self.is_to_stay(before.whole.as_ref(), row.key).await? {
                return Ok(None);
            }
            let Some(after) = self.in_source(row.key).await? else { return Ok(None) };
            let [version, version_after] =
                [&before, &after].map(|found| found.whole.as_ref().map(Whole::version));
            let is_marked = is_written(&before) || is_written(&after);
            let is_on_its_way = is_marked || version != version_after;
            let was_there = last_seen.replace(version) == Some(version);
            if was_there && !is_on_its_way {
                let difference =
                    Difference { key: row.key.to_string(), table: table.to_owned(), kind, fields };
                return Ok(Some(Stray { difference, row, whole: before.whole }));
            }
            sleep(GENERATION_PAUSE).await;
        }
        if self.notes.is_set_aside(&row.key.to_string()).await? {
            return Ok(None);
        }
        Err(is_unsettled(row.key))
    }

    /// Removes a row that should not be there; says whether all is well then.
    ///
    /// One that should be there and says something else under the same version is removed only where the table
    /// decides and takes the row again: the others may refuse what is not newer than what they have lost.
    async fn mend_row(&self, table: &'static str, stray: &Stray<W>) -> StoreResult<bool> {
        let Some(whole) = &stray.whole else {
            if self.is_forward {
                self.target.remove(table, &stray.row).await?;
            }
            return Ok(self.is_forward);
        };
        let in_tables = self.in_tables(whole).await?;
        let decides =
            in_tables.first().is_some_and(|first| first.table == table) && self.target.is_replaceable(table);
        let is_told_right = differences(whole, &in_tables).iter().all(|difference| difference.table != table);
        if decides || is_told_right {
            self.target.remove(table, &stray.row).await?;
        }
        put_or_set_aside(&*self.target, &self.notes, whole.clone(), &*self.clock).await?;
        let left = differences(whole, &self.in_tables(whole).await?);
        Ok(left.iter().all(|difference| difference.table != table))
    }

    /// Whether what a row stands for does not expire right now. What the source has lost by that, the target loses, too.
    async fn is_to_stay(&self, source: Option<&W>, key: W::Key) -> StoreResult<bool> {
        match source {
            Some(whole) => Ok(self.is_settled(whole)),
            None => match self.target.whole(key).await {
                Err(StoreError::Corrupt { .. }) => Ok(true),
                found => Ok(found?.whole.is_none_or(|copy| self.is_settled(&copy))),
            },
        }
    }
}
