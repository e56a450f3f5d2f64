//! Users: one email, one user.

mod races;

use mobimir_core::{
    time::Version,
    user::{Profile, User},
};
use proptest::prelude::*;

use super::{
    Suite,
    arena::{Bench, CaseClock},
    check::{Checked, answered, race, same},
};
use crate::strategies;

const USERS: usize = 4;
const EMAILS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Wait {
        ms: i64,
    },
    Insert {
        id: usize,
        email: usize,
        user: User,
    },
    Get {
        id: usize,
    },
    ByEmail {
        email: usize,
    },
    /// With another address in it at times: the stored one stays.
    Update {
        id: usize,
        email: usize,
        profile: Profile,
        right_version: bool,
    },
}

pub(super) fn conform(suite: &Suite) {
    suite.compare_with_model("users", step(), run);
    races::conform(suite);
}

fn step() -> impl Strategy<Value = Step> {
    let (id, email) = (|| 0..USERS, || 0..EMAILS);
    prop_oneof![
        1 => prop_oneof![Just(0), Just(1), 0..100_000i64].prop_map(|ms| Step::Wait { ms }),
        3 => (id(), email(), strategies::user()).prop_map(|(id, email, user)| Step::Insert { id, email, user }),
        1 => id().prop_map(|id| Step::Get { id }),
        1 => email().prop_map(|email| Step::ByEmail { email }),
        3 => (id(), email(), strategies::profile(), any::<bool>()).prop_map(
            |(id, email, profile, right_version)| Step::Update { id, email, profile, right_version }
        ),
    ]
}

async fn run(bench: &Bench, steps: &[Step]) -> Checked {
    let mut clock = bench.universe.clock();
    for step in steps {
        apply(bench, &mut clock, step).await?;
    }
    for id in 0..USERS {
        get(bench, id).await?;
    }
    for email in 0..EMAILS {
        by_email(bench, email).await?;
    }
    Ok(())
}

async fn apply(bench: &Bench, clock: &mut CaseClock, step: &Step) -> Checked {
    let (store, model, universe) = (&bench.store.users, &bench.model.users, &bench.universe);
    let now = clock.now;
    match step {
        Step::Wait { ms } => clock.advance_ms(*ms),
        Step::Insert { id, email, user } => {
            let user = User {
                id: universe.user(*id),
                email: universe.email(*email),
                created_at: now,
                updated_at: now,
                version: Version::default().next(now),
                ..user.clone()
            };
            same(step, answered(store.insert(user.clone()).await)?, answered(model.insert(user).await)?)?;
        }
        Step::Get { id } => get(bench, *id).await?,
        Step::ByEmail { email } => by_email(bench, *email).await?,
        Step::Update { id, email, profile, right_version } => {
            let Some(stored) = answered(model.get(universe.user(*id)).await)? else { return Ok(()) };
            let expected = if *right_version { stored.version } else { Version(stored.version.0 - 1) };
            let user = User {
                email: universe.email(*email),
                profile: profile.clone(),
                updated_at: now,
                version: stored.version.next(now),
                ..stored
            };
            let updated = answered(store.update(user.clone(), expected).await)?;
            same(step, updated, answered(model.update(user, expected).await)?)?;
        }
    }
    Ok(())
}

async fn get(bench: &Bench, id: usize) -> Checked {
    let id = bench.universe.user(id);
    let expected = answered(bench.model.users.get(id).await)?;
    bench
        .sees(format!("get {id}"), shown(expected), async || bench.store.users.get(id).await.map(shown))
        .await
}

async fn by_email(bench: &Bench, email: usize) -> Checked {
    let email = bench.universe.email(email);
    let expected = answered(bench.model.users.by_email(&email).await)?;
    let read = async || bench.store.users.by_email(&email).await.map(shown);
    bench.sees(format!("by_email {email}"), shown(expected), read).await
}

/// A user's `Debug` says little, on purpose; here the rest is needed to see a difference.
fn shown(user: Option<User>) -> Option<impl PartialEq + std::fmt::Debug> {
    user.map(|u| (u.id, u.email, u.password_hash, u.profile, u.created_at, u.updated_at, u.version))
}
