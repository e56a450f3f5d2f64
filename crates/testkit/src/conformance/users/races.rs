use mobimir_core::{
    time::Version,
    user::{Profile, User},
};

use super::{Bench, Checked, Suite, answered, race, same};
use crate::conformance::check::RACERS;

pub(super) fn conform(suite: &Suite) {
    suite.race("one email, one user", one_user_an_email);
    suite.race("one update a version", one_update_a_version);
}

fn user(bench: &Bench, id: usize, email: usize) -> User {
    let now = bench.universe.start;
    User {
        id: bench.universe.user(id),
        email: bench.universe.email(email),
        password_hash: String::new(),
        profile: Profile::default(),
        created_at: now,
        updated_at: now,
        version: Version::default().next(now),
    }
}

async fn one_user_an_email(bench: &Bench) -> Checked {
    let users = &bench.store.users;
    let inserted = race(RACERS, |caller| {
        let (users, user) = (users.clone(), user(bench, caller, 0));
        async move { Ok((user.id, users.insert(user).await?)) }
    })
    .await?;
    let winners: Vec<_> = inserted.iter().filter(|(_, won)| *won).map(|(id, _)| *id).collect();
    same("inserts of one email that won", winners.len(), 1)?;
    let found = answered(users.by_email(&bench.universe.email(0)).await)?;
    same("the user with the email", found.map(|user| user.id), Some(winners[0]))?;
    for (id, won) in inserted {
        same("a user who lost does not exist", answered(users.get(id).await)?.is_some(), won)?;
    }
    Ok(())
}

async fn one_update_a_version(bench: &Bench) -> Checked {
    let users = &bench.store.users;
    let first = user(bench, 0, 0);
    answered(users.insert(first.clone()).await)?;
    let updated = race(RACERS, |caller| {
        let (users, expected) = (users.clone(), first.version);
        let profile = Profile { name: Some(format!("{caller}")), ..Profile::default() };
        let user = User { profile, version: expected.next(first.updated_at), ..first.clone() };
        async move { Ok((user.profile.name.clone(), users.update(user, expected).await?)) }
    })
    .await?;
    let winners: Vec<_> = updated.into_iter().filter(|(_, won)| *won).map(|(name, _)| name).collect();
    same("updates of one version that won", winners.len(), 1)?;
    let stored = answered(users.get(first.id).await)?;
    same("what the winner wrote", stored.and_then(|user| user.profile.name), winners[0].clone())
}
