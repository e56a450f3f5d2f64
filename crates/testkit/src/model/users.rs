use async_trait::async_trait;
use mobimir_core::{
    id::UserId,
    ports::{StoreResult, UserStore},
    time::Version,
    user::{Email, User},
};

use super::ModelStore;

#[async_trait]
impl UserStore for ModelStore {
    async fn insert(&self, user: User) -> StoreResult<bool> {
        let mut state = self.state();
        if state.users.values().any(|other| other.id == user.id || other.email == user.email) {
            return Ok(false);
        }
        state.users.insert(user.id, user);
        Ok(true)
    }

    async fn get(&self, id: UserId) -> StoreResult<Option<User>> {
        Ok(self.state().users.get(&id).cloned())
    }

    async fn by_email(&self, email: &Email) -> StoreResult<Option<User>> {
        Ok(self.state().users.values().find(|user| user.email == *email).cloned())
    }

    async fn update(&self, user: User, expected: Version) -> StoreResult<bool> {
        let mut state = self.state();
        match state.users.get_mut(&user.id) {
            Some(stored) if stored.version == expected => {
                *stored = User { email: stored.email.clone(), ..user };
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
