//! Users on the engine.

use async_trait::async_trait;
use mobimir_core::{
    id::UserId,
    ports::{StoreResult, UserStore},
    time::Version,
    user::{Email, User},
};

use crate::{
    EmbeddedStore,
    records::{user, user_by_email},
    store::Shared,
};

#[async_trait]
impl UserStore for EmbeddedStore {
    async fn insert(&self, user: User) -> StoreResult<bool> {
        self.write(move |_, txn| {
            let (key, email_key) = (user::key(user.id), user_by_email::key(&user.email));
            if txn.contains(&key)? || txn.contains(&email_key)? {
                return Ok(false);
            }
            txn.put(key, user::encode(&user));
            txn.put(email_key, user_by_email::encode(user.id));
            Ok(true)
        })
        .await
    }

    async fn get(&self, id: UserId) -> StoreResult<Option<User>> {
        self.read_in_place(move |shared| shared.user(id)).await
    }

    async fn by_email(&self, email: &Email) -> StoreResult<Option<User>> {
        let key = user_by_email::key(email);
        self.read_in_place(move |shared| match shared.tables.get(&key)? {
            Some(id) => shared.user(user_by_email::decode(&id)?),
            None => Ok(None),
        })
        .await
    }

    async fn update(&self, user: User, expected: Version) -> StoreResult<bool> {
        self.write(move |_, txn| {
            let key = user::key(user.id);
            let Some(stored) = txn.get(&key)? else { return Ok(false) };
            let stored = user::decode(user.id, &stored)?;
            if stored.version != expected {
                return Ok(false);
            }
            txn.put(key, user::encode(&User { email: stored.email, ..user }));
            Ok(true)
        })
        .await
    }
}

impl Shared {
    fn user(&self, id: UserId) -> StoreResult<Option<User>> {
        self.tables.get(&user::key(id))?.map(|bytes| user::decode(id, &bytes)).transpose()
    }
}
