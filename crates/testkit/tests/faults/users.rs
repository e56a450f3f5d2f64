use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::UserId,
    ports::{StoreResult, Stores, UserStore},
    time::Version,
    user::{Email, User},
};
use mobimir_testkit::conformance;

use crate::{Door, OPTIONS, faulty, must_be_found};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    TellsEverybodyWhoRacesThatTheyWon,
    IgnoresTheVersion,
    LosesTheProfile,
}

#[test]
fn users() {
    use Fault::*;
    for fault in [TellsEverybodyWhoRacesThatTheyWon, IgnoresTheVersion, LosesTheProfile] {
        let stores = || async move {
            faulty(|model| {
                let (inner, door) = (model.users.clone(), Door::default());
                Stores { users: Arc::new(Faulty { fault, inner, door }), ..model.clone() }
            })
        };
        must_be_found(&fault, || conformance::users(&stores, OPTIONS));
    }
}

struct Faulty {
    fault: Fault,
    inner: Arc<dyn UserStore>,
    door: Door,
}

#[async_trait]
impl UserStore for Faulty {
    async fn insert(&self, user: User) -> StoreResult<bool> {
        let is_first = self.door.enter().await;
        let inserted = self.inner.insert(user).await?;
        self.door.leave();
        Ok(inserted || self.fault == Fault::TellsEverybodyWhoRacesThatTheyWon && !is_first)
    }

    async fn get(&self, id: UserId) -> StoreResult<Option<User>> {
        self.inner.get(id).await
    }

    async fn by_email(&self, email: &Email) -> StoreResult<Option<User>> {
        self.inner.by_email(email).await
    }

    async fn update(&self, mut user: User, mut expected: Version) -> StoreResult<bool> {
        match (self.fault, self.inner.get(user.id).await?) {
            (Fault::IgnoresTheVersion, Some(stored)) => expected = stored.version,
            (Fault::LosesTheProfile, Some(stored)) => user.profile = stored.profile,
            _ => {}
        }
        self.inner.update(user, expected).await
    }
}
