//! Small records: what is replaced by comparison is replaced once.

use std::sync::Arc;

use mobimir_core::notes::{Expected, Note, NoteStore};
use proptest::{option, prelude::*};

use super::{
    arena,
    check::{Checked, RACERS, answered, holds, race, same},
};

type Store = Arc<dyn NoteStore>;
type Suite = super::Suite<Store>;
type Bench = arena::Bench<Store>;

const NAMES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Get { name: usize },
    Write { name: usize, expected: Wanted, body: Vec<u8> },
    Remove { name: usize, expected: Wanted },
    List { after: Option<usize>, limit: usize },
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    Anything,
    Nothing,
    WhatIsThere,
    SomethingElse,
}

pub(super) fn conform(suite: &Suite) {
    suite.compare_with_model("notes", step(), run);
    suite.race("of many who replace the same note one does", one_replaces);
    suite.race("of many who make the same note one does", one_makes);
}

fn step() -> impl Strategy<Value = Step> {
    let wanted = || {
        prop_oneof![
            Just(Wanted::Anything),
            Just(Wanted::Nothing),
            Just(Wanted::WhatIsThere),
            Just(Wanted::SomethingElse),
        ]
    };
    let body = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        2 => (0..NAMES).prop_map(|name| Step::Get { name }),
        4 => (0..NAMES, wanted(), body()).prop_map(|(name, expected, body)| Step::Write { name, expected, body }),
        1 => (0..NAMES, wanted()).prop_map(|(name, expected)| Step::Remove { name, expected }),
        2 => (option::of(0..NAMES), 1..4usize).prop_map(|(after, limit)| Step::List { after, limit }),
    ]
}

fn name(bench: &Bench, n: usize) -> String {
    format!("{}/{n}%_\\ё.*", bench.universe.word)
}

async fn run(bench: &Bench, steps: &[Step]) -> Checked {
    for step in steps {
        apply(bench, step).await?;
    }
    let all = format!("{}/", bench.universe.word);
    same_notes("all", answered(bench.store.list(&all, None, 100).await)?, {
        answered(bench.model.list(&all, None, 100).await)?
    })
}

async fn apply(bench: &Bench, step: &Step) -> Checked {
    let (store, model) = (&bench.store, &bench.model);
    match step {
        Step::Get { name: n } => {
            let name = name(bench, *n);
            let (actual, expected) = (answered(store.get(&name).await)?, answered(model.get(&name).await)?);
            same_notes(step, actual.into_iter().collect(), expected.into_iter().collect())
        }
        Step::Write { name: n, expected, body } => {
            let name = name(bench, *n);
            let mut wrote = Vec::new();
            for side in [store, model] {
                let expected = wanted(side, &name, *expected).await?;
                let before = answered(side.get(&name).await)?.map(|note| note.revision);
                let revision = answered(side.write(&name, expected, body.clone()).await)?;
                holds("a revision is raised", revision.is_none() || revision > before)?;
                wrote.push(revision.is_some());
            }
            same(step, wrote[0], wrote[1])
        }
        Step::Remove { name: n, expected } => {
            let name = name(bench, *n);
            let mut removed = Vec::new();
            for side in [store, model] {
                let expected = wanted(side, &name, *expected).await?;
                removed.push(answered(side.remove(&name, expected).await)?);
            }
            same(step, removed[0], removed[1])
        }
        Step::List { after, limit } => {
            let all = format!("{}/", bench.universe.word);
            let after = after.map(|n| name(bench, n));
            let actual = answered(store.list(&all, after.as_deref(), *limit).await)?;
            same_notes(step, actual, answered(model.list(&all, after.as_deref(), *limit).await)?)
        }
    }
}

async fn wanted(store: &Store, name: &str, wanted: Wanted) -> Result<Expected, super::check::Failure> {
    let revision = answered(store.get(name).await)?.map(|note| note.revision);
    Ok(match (wanted, revision) {
        (Wanted::Anything, _) => Expected::Anything,
        (Wanted::Nothing, _) | (Wanted::WhatIsThere, None) => Expected::Nothing,
        (Wanted::WhatIsThere, Some(revision)) => Expected::Revision(revision),
        (Wanted::SomethingElse, revision) => Expected::Revision(revision.unwrap_or_default() + 1),
    })
}

/// Revisions are the store's own.
fn same_notes(what: impl std::fmt::Debug, actual: Vec<Note>, expected: Vec<Note>) -> Checked {
    let told = |notes: Vec<Note>| -> Vec<(String, Vec<u8>)> {
        notes.into_iter().map(|note| (note.name, note.body)).collect()
    };
    same(what, told(actual), told(expected))
}

async fn one_replaces(bench: &Bench) -> Checked {
    let (store, name) = (&bench.store, name(bench, 0));
    let first = answered(store.write(&name, Expected::Nothing, vec![0]).await)?;
    let expected = Expected::Revision(first.unwrap_or_default());
    winners(bench, expected, &name).await
}

async fn one_makes(bench: &Bench) -> Checked {
    winners(bench, Expected::Nothing, &name(bench, 1)).await
}

async fn winners(bench: &Bench, expected: Expected, name: &str) -> Checked {
    let outcomes = race(RACERS, |racer| {
        let (store, name) = (bench.store.clone(), name.to_owned());
        async move { Ok((racer, store.write(&name, expected, vec![racer as u8]).await?)) }
    })
    .await?;
    let won: Vec<(usize, Option<u64>)> =
        outcomes.into_iter().filter(|(_, revision)| revision.is_some()).collect();
    same("how many replaced it", won.len(), 1)?;
    let stored = answered(bench.store.get(name).await)?.map(|note| (note.body, Some(note.revision)));
    same("who did", stored, won.first().map(|(racer, revision)| (vec![*racer as u8], *revision)))
}
