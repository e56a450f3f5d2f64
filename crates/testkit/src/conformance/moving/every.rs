//! What is true of every kind of data that moves.

use std::{collections::BTreeMap, sync::Arc};

use mobimir_core::{
    moving::{Facts, Found, Mark, Movable, Range, Rows, Side, Whole},
    time::Timestamp,
};

use super::{
    super::{Suite, arena},
    Checked, DAY_MS, Failure, RACERS, Subject, answered, at, holds, race, same,
};

type Bench<S> = arena::Bench<<S as Subject>::Stores>;

const PAGE: usize = 3;
/// More steps than any scan of a case takes.
const SCAN_STEPS_MAX: usize = 10_000;

pub(super) fn conform<S: Subject>(suite: &Suite<S::Stores>) {
    let what = |text: &str| format!("{}: {text}", S::NAME);
    suite.example(&what("what is written through the port is whole"), whole::<S>);
    suite.example(&what("only tracked writes leave marks, and only the named ones go"), marks::<S>);
    suite.example(&what("a put is kept, unless something newer is there"), put::<S>);
    suite.example(&what("so is one where only copies are"), put_first::<S>);
    suite.example(&what("what has expired is not put"), expired::<S>);
    suite.example(&what("a scan meets everything once"), scan::<S>);
    suite.example(&what("what should not be there is found and removed"), strays::<S>);
    suite.example(&what("what says something else is removed and put again"), mended::<S>);
    suite.race(&what("MIG-1: what is written while it is copied"), copied_while_written::<S>);
    suite.race(&what("of many puts at once the newest"), many_puts::<S>);
}

type Key<S> = <<S as Subject>::W as Whole>::Key;

fn store<S: Subject>(bench: &Bench<S>) -> &Side<S::W, S::Port> {
    S::side(&bench.store)
}

fn model<S: Subject>(bench: &Bench<S>) -> &Side<S::W, S::Port> {
    S::side(&bench.model)
}

async fn found<S: Subject>(moving: &Arc<dyn Movable<S::W>>, key: Key<S>) -> Result<Found<S::W>, Failure> {
    answered(moving.whole(key).await)
}

/// What is said of each of the keys.
async fn facts<S: Subject>(
    moving: &Arc<dyn Movable<S::W>>,
    keys: &[Key<S>],
) -> Result<BTreeMap<Key<S>, Option<Facts>>, Failure> {
    let mut all = BTreeMap::new();
    for key in keys {
        all.insert(*key, found::<S>(moving, *key).await?.whole.map(|whole| whole.facts()));
    }
    Ok(all)
}

async fn wholes<S: Subject>(moving: &Arc<dyn Movable<S::W>>, keys: &[Key<S>]) -> Result<Vec<S::W>, Failure> {
    let mut all = Vec::new();
    for key in keys {
        all.extend(found::<S>(moving, *key).await?.whole);
    }
    Ok(all)
}

async fn marks_of<S: Subject>(
    moving: &Arc<dyn Movable<S::W>>,
    keys: &[Key<S>],
) -> Result<Vec<Mark<Key<S>>>, Failure> {
    let mut all = Vec::new();
    for key in keys {
        all.extend(found::<S>(moving, *key).await?.marks);
    }
    Ok(all)
}

/// Every table says the same as the whole does, as far as it says anything.
async fn told_everywhere<S: Subject>(moving: &Arc<dyn Movable<S::W>>, whole: &S::W) -> Checked {
    let expected = whole.facts();
    let in_tables = answered(moving.in_tables(whole).await)?;
    let tables: Vec<&str> = in_tables.iter().map(|in_table| in_table.table).collect();
    let is_known = |table: &&str| moving.tables().contains(table);
    holds(("tables of", moving.tables(), &tables), !tables.is_empty() && tables.iter().all(is_known))?;
    for in_table in in_tables {
        let Some(facts) = in_table.facts else {
            return Err(Failure::Differs(format!("{} has nothing of {whole:?}", in_table.table)));
        };
        for (field, value) in facts.iter() {
            if let Some(expected) = expected.get(field) {
                same((in_table.table, field), value, expected)?;
            }
        }
    }
    Ok(())
}

async fn whole<S: Subject>(bench: &Bench<S>) -> Checked {
    let (universe, store, model) = (&bench.universe, store::<S>(bench), model::<S>(bench));
    let keys = S::keys(universe, 0);
    same("before", facts::<S>(&store.moving, &keys).await?, keys.iter().map(|key| (*key, None)).collect())?;
    for side in [store, model] {
        answered(S::make(universe, &side.port, 0).await)?;
    }
    for change in 0..=S::CHANGES_MAX {
        let expected = facts::<S>(&model.moving, &keys).await?;
        bench
            .sees(("after change", change), expected, async || facts::<S>(&store.moving, &keys).await)
            .await?;
        for whole in wholes::<S>(&store.moving, &keys).await? {
            bench.eventually(async || told_everywhere::<S>(&store.moving, &whole).await).await?;
        }
        if change < S::CHANGES_MAX {
            for side in [store, model] {
                answered(S::change(universe, &side.port, 0, change).await)?;
            }
        }
    }
    Ok(())
}

async fn marks<S: Subject>(bench: &Bench<S>) -> Checked {
    let (universe, side) = (&bench.universe, store::<S>(bench));
    let (plain, tracked) = (S::keys(universe, 0), S::keys(universe, 1));
    answered(S::make(universe, &side.port, 0).await)?;
    answered(S::make(universe, &side.tracked, 1).await)?;
    same("marks of a plain write", marks_of::<S>(&side.moving, &plain).await?, Vec::new())?;
    let first = marks_of::<S>(&side.moving, &tracked).await?;
    let marked = |marks: &[Mark<Key<S>>]| tracked.iter().all(|key| marks.iter().any(|mark| mark.key == *key));
    holds("a tracked write marks all that it writes", marked(&first))?;
    let listed = answered(side.moving.unmirrored(usize::MAX >> 1).await)?;
    holds("what is marked is listed", marked(&listed))?;
    holds("what is not marked is not", !listed.iter().any(|mark| plain.contains(&mark.key)))?;
    let backlog = answered(side.moving.backlog().await)?;
    holds("it is counted", backlog.entities >= tracked.len() as u64 && backlog.oldest.is_some())?;

    let copied = first.iter().map(|mark| mark.since).max().unwrap_or_default();
    // A store that goes by its own clock has another time for the next write.
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let read_at = copied.plus_ms(1);
    answered(S::change(universe, &side.tracked, 1, 0).await)?;
    answered(side.moving.mirrored(&first, read_at).await)?;
    let second = marks_of::<S>(&side.moving, &tracked).await?;
    holds("a mark of a later write stays", !second.is_empty())?;
    let is_later = |mark: &Mark<Key<S>>| mark.since >= read_at || !first.iter().any(|of| of.key == mark.key);
    holds(("it waits since what came before was read", read_at, &second), second.iter().all(is_later))?;
    answered(side.moving.mirrored(&second, read_at).await)?;
    same("marks of what is copied", marks_of::<S>(&side.moving, &tracked).await?, Vec::new())?;
    // To say it twice does no harm.
    answered(side.moving.mirrored(&second, read_at).await)
}

/// The states that the `n`th has had, oldest first, as the model knows them.
async fn states<S: Subject>(bench: &Bench<S>, n: usize) -> Result<Vec<Vec<S::W>>, Failure> {
    let (universe, model) = (&bench.universe, model::<S>(bench));
    let keys = S::keys(universe, n);
    answered(S::make(universe, &model.port, n).await)?;
    let mut states = vec![wholes::<S>(&model.moving, &keys).await?];
    for change in 0..S::CHANGES_MAX {
        answered(S::change(universe, &model.port, n, change).await)?;
        states.push(wholes::<S>(&model.moving, &keys).await?);
    }
    Ok(states)
}

async fn put<S: Subject>(bench: &Bench<S>) -> Checked {
    put_each::<S>(bench, false).await
}

async fn put_first<S: Subject>(bench: &Bench<S>) -> Checked {
    put_each::<S>(bench, true).await
}

async fn put_each<S: Subject>(bench: &Bench<S>, are_new: bool) -> Checked {
    let (universe, side) = (&bench.universe, store::<S>(bench));
    let states = states::<S>(bench, 0).await?;
    let keys = S::keys(universe, 0);
    // 0, 1, 1, 0, 2, 2, 1, ...: each new one, again, and the one before.
    for newest in 0..states.len() {
        let expected: BTreeMap<Key<S>, Option<Facts>> =
            states[newest].iter().map(|whole| (whole.key(), Some(whole.facts()))).collect();
        for state in [newest, newest, newest.saturating_sub(1)] {
            let copies = states[state].clone();
            answered(match are_new {
                true => side.moving.put_first(copies, universe.start).await,
                false => side.moving.put(copies, universe.start).await,
            })?;
            let what = format!("after a put of {state}, of which {newest} is the newest");
            let stored = async || facts::<S>(&side.moving, &keys).await;
            bench.sees(what, expected.clone(), stored).await?;
            for whole in &states[newest] {
                bench.eventually(async || told_everywhere::<S>(&side.moving, whole).await).await?;
            }
        }
    }
    same("marks of what was put", marks_of::<S>(&side.moving, &keys).await?, Vec::new())
}

async fn expired<S: Subject>(bench: &Bench<S>) -> Checked {
    let Some(lasts_ms) = S::LASTS_MS else { return Ok(()) };
    let (universe, side) = (&bench.universe, store::<S>(bench));
    let states = states::<S>(bench, 0).await?;
    let keys = S::keys(universe, 0);
    let over: Timestamp = universe.start.plus_ms(lasts_ms + DAY_MS);
    answered(side.moving.put(states[0].clone(), over).await)?;
    same("what was over", wholes::<S>(&side.moving, &keys).await?, Vec::new())
}

async fn scan<S: Subject>(bench: &Bench<S>) -> Checked {
    const MADE: usize = 7;
    let (universe, side) = (&bench.universe, store::<S>(bench));
    let mut expected = BTreeMap::new();
    for n in 0..MADE {
        answered(S::make(universe, &side.port, n).await)?;
        expected.extend(S::keys(universe, n).into_iter().map(|key| (key, 1)));
    }
    for parts in [1, 4, 16] {
        let met = async || {
            let mut met = BTreeMap::<Key<S>, usize>::new();
            for range in answered(side.moving.ranges(parts).await)? {
                for whole in scanned::<S>(&side.moving, range).await? {
                    *met.entry(whole.key()).or_default() += usize::from(expected.contains_key(&whole.key()));
                }
            }
            met.retain(|_, times| *times > 0);
            Ok::<_, Failure>(met)
        };
        bench.sees(("met in ranges", parts), expected.clone(), met).await?;
    }
    // Others may be there, too.
    let counted = async || answered(side.moving.count().await).map(|count| count >= expected.len() as u64);
    bench.sees("counted", true, counted).await
}

async fn scanned<S: Subject>(
    moving: &Arc<dyn Movable<S::W>>,
    mut range: Range,
) -> Result<Vec<S::W>, Failure> {
    let mut all = Vec::new();
    for _ in 0..SCAN_STEPS_MAX {
        let step = answered(moving.scan(&range, PAGE).await)?;
        holds("a scan gives no more than was asked for", step.items.len() <= PAGE)?;
        for item in step.items {
            all.push(item.map_err(|unreadable| Failure::Broken(format!("{unreadable:?}")))?);
        }
        match step.next {
            Some(next) => range.after = Some(next),
            None => return Ok(all),
        }
    }
    Err(Failure::Broken("a scan does not end".to_owned()))
}

/// Everything a table has, of these keys.
async fn rows<S: Subject>(
    moving: &Arc<dyn Movable<S::W>>,
    table: &'static str,
    keys: &[Key<S>],
) -> Result<Vec<mobimir_core::moving::Row<Key<S>>>, Failure> {
    let (mut all, mut after) = (Vec::new(), None);
    for _ in 0..SCAN_STEPS_MAX {
        let Rows { items, nameless: _, next } = answered(moving.rows(table, after.as_ref(), PAGE).await)?;
        all.extend(items.into_iter().filter(|row| keys.contains(&row.key)));
        after = next;
        if after.is_none() {
            return Ok(all);
        }
    }
    Err(Failure::Broken(format!("the rows of {table} do not end")))
}

async fn strays<S: Subject>(bench: &Bench<S>) -> Checked {
    let (universe, side) = (&bench.universe, store::<S>(bench));
    let states = states::<S>(bench, 0).await?;
    let (keys, state) = (S::keys(universe, 0), states.last().cloned().unwrap_or_default());
    answered(side.moving.put(state.clone(), universe.start).await)?;
    for whole in &state {
        for in_table in answered(side.moving.in_tables(whole).await)? {
            let of_it = async || rows::<S>(&side.moving, in_table.table, &[whole.key()]).await;
            let is_met = async || of_it().await.map(|rows| !rows.is_empty());
            bench.sees(("met in", in_table.table), true, is_met).await?;
            for row in of_it().await? {
                for (field, value) in row.facts.iter() {
                    if let Some(expected) = whole.facts().get(field) {
                        same((in_table.table, field), value, expected)?;
                    }
                }
                answered(side.moving.remove(in_table.table, &row).await)?;
            }
            bench.sees(("removed from", in_table.table), false, is_met).await?;
        }
    }
    let left = async || wholes::<S>(&side.moving, &keys).await;
    bench.sees("what is left", Vec::new(), left).await
}

/// A row of the table that decides can be removed and written again under the same version: so it is mended when it says
/// something else.
async fn mended<S: Subject>(bench: &Bench<S>) -> Checked {
    let (universe, side) = (&bench.universe, store::<S>(bench));
    let states = states::<S>(bench, 0).await?;
    let (keys, state) = (S::keys(universe, 0), states.last().cloned().unwrap_or_default());
    answered(side.moving.put(state.clone(), universe.start).await)?;
    for whole in &state {
        let in_tables = answered(side.moving.in_tables(whole).await)?;
        let decides = in_tables.first().ok_or_else(|| Failure::Broken("it stands nowhere".to_owned()))?.table;
        if !side.moving.is_replaceable(decides) {
            continue;
        }
        let of_it = async || rows::<S>(&side.moving, decides, &[whole.key()]).await;
        let is_met = async || of_it().await.map(|rows| !rows.is_empty());
        bench.sees(("met in", decides), true, is_met).await?;
        for row in of_it().await? {
            answered(side.moving.remove(decides, &row).await)?;
        }
        bench.sees(("removed from", decides), false, is_met).await?;
        answered(side.moving.put(vec![whole.clone()], universe.start).await)?;
    }
    let facts = |wholes: &[S::W]| wholes.iter().map(Whole::facts).collect::<Vec<_>>();
    let again = async || wholes::<S>(&side.moving, &keys).await.map(|wholes| facts(&wholes));
    bench.sees("what was put again", facts(&state), again).await
}

/// Many write through the tracked port while somebody copies what is marked. When no mark is left, the copy is what the
/// store has.
async fn copied_while_written<S: Subject>(bench: &Bench<S>) -> Checked {
    let (store, copy) = (store::<S>(bench).clone(), model::<S>(bench).clone());
    let racers = RACERS / 4;
    let keys: Vec<Key<S>> = (0..racers).flat_map(|n| S::keys(&bench.universe, n)).collect();
    let universe = Arc::new(bench.universe.clone());
    let now = at(&universe, 0);
    race(racers + 2, |racer| {
        let (store, copy, universe, keys) = (store.clone(), copy.clone(), universe.clone(), keys.clone());
        async move {
            if racer >= racers {
                for _ in 0..S::CHANGES_MAX * 2 {
                    copy_marked::<S>(&store, &copy, &keys, now).await?;
                }
                return Ok(());
            }
            S::make(&universe, &store.tracked, racer).await?;
            for change in 0..S::CHANGES_MAX {
                S::change(&universe, &store.tracked, racer, change).await?;
            }
            Ok(())
        }
    })
    .await?;
    while answered(copy_marked::<S>(&store, &copy, &keys, now).await)? > 0 {}
    let expected = facts::<S>(&store.moving, &keys).await?;
    holds("everything was written", expected.values().all(Option::is_some))?;
    same("the copy", facts::<S>(&copy.moving, &keys).await?, expected)
}

/// Copies what is marked of these keys; says how many that were.
async fn copy_marked<S: Subject>(
    from: &Side<S::W, S::Port>,
    to: &Side<S::W, S::Port>,
    keys: &[Key<S>],
    now: Timestamp,
) -> mobimir_core::ports::StoreResult<usize> {
    let marked = from.moving.unmirrored(usize::MAX >> 1).await?;
    let marked: Vec<Key<S>> = marked.iter().map(|mark| mark.key).filter(|key| keys.contains(key)).collect();
    for key in &marked {
        let Found { whole, marks, .. } = from.moving.whole(*key).await?;
        to.moving.put(whole.into_iter().collect(), now).await?;
        from.moving.mirrored(&marks, now).await?;
    }
    Ok(marked.len())
}

async fn many_puts<S: Subject>(bench: &Bench<S>) -> Checked {
    let (universe, side) = (&bench.universe, store::<S>(bench).clone());
    let states = states::<S>(bench, 0).await?;
    let (keys, newest) = (S::keys(universe, 0), states.last().cloned().unwrap_or_default());
    let start = universe.start;
    race(states.len() * 2, |racer| {
        let (moving, state) = (side.moving.clone(), states[racer % states.len()].clone());
        async move { moving.put(state, start).await }
    })
    .await?;
    let expected: BTreeMap<Key<S>, Option<Facts>> =
        newest.iter().map(|whole| (whole.key(), Some(whole.facts()))).collect();
    bench.sees("the newest", expected, async || facts::<S>(&side.moving, &keys).await).await?;
    for whole in &newest {
        bench.eventually(async || told_everywhere::<S>(&side.moving, whole).await).await?;
    }
    Ok(())
}
