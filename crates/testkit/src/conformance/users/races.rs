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
    let email = bench.universe.email(0);
    let found = async || users.by_email(&email).await.map(|found| found.map(|user| user.id));
    bench.sees("the user with the email", Some(winners[0]), found).await?;
    for (id, won) in inserted {
        let exists = async || users.get(id).await.map(|found| found.is_some());
        bench.sees("a user who lost does not exist", won, exists).await?;
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
    let name = async || users.get(first.id).await.map(|found| found.and_then(|user| user.profile.name));
    bench.sees("what the winner wrote", winners[0].clone(), name).await
}
