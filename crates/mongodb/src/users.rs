//! Users: a document each, found by id and by email.

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::UserId,
    policy::Entity,
    ports::{StoreResult, UserStore},
    time::Version,
    user::{Email, Profile, User},
};
use mongodb::{
    Collection,
    bson::{DateTime, Uuid, doc},
};
use serde::{Deserialize, Serialize};

use crate::{
    deployment::Deployment,
    leaves::{date, id, number, time, uuid, version, zone},
    link::{Link, damaged},
};

pub struct MongoUsers {
    link: Link,
    users: Collection<UserDoc>,
}

#[derive(Debug, Serialize, Deserialize)]
struct UserDoc {
    #[serde(rename = "_id")]
    id: Uuid,
    email: String,
    password_hash: String,
    profile: ProfileDoc,
    created_at: DateTime,
    updated_at: DateTime,
    version: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct ProfileDoc {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    geo_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shipping_address: Option<String>,
}

impl MongoUsers {
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let link = Link::new(deployment, Entity::Users);
        Self { users: link.collection("users"), link }
    }
}

#[async_trait]
impl UserStore for MongoUsers {
    async fn insert(&self, user: User) -> StoreResult<bool> {
        self.link.insert_one("insert_user", &self.users, &UserDoc::of(user)).await
    }

    async fn get(&self, id: UserId) -> StoreResult<Option<User>> {
        let found = self.link.find_one("user", &self.users, doc! { "_id": uuid(id.0) }).await?;
        found.map(UserDoc::user).transpose()
    }

    async fn by_email(&self, email: &Email) -> StoreResult<Option<User>> {
        let found =
            self.link.find_one("user_by_email", &self.users, doc! { "email": email.as_str() }).await?;
        found.map(UserDoc::user).transpose()
    }

    async fn update(&self, user: User, expected: Version) -> StoreResult<bool> {
        let filter = doc! { "_id": uuid(user.id.0), "version": number(expected) };
        let UserDoc { password_hash, profile, created_at, updated_at, version, .. } = UserDoc::of(user);
        let profile =
            mongodb::bson::serialize_to_document(&profile).map_err(|error| damaged(error.to_string()))?;
        let update = doc! { "$set": {
            "password_hash": password_hash,
            "profile": profile,
            "created_at": created_at,
            "updated_at": updated_at,
            "version": version,
        } };
        let updated = self.link.update_one("update_user", &self.users, filter, update, false).await?;
        Ok(updated.matched)
    }
}

impl UserDoc {
    fn of(user: User) -> Self {
        let Profile { name, phone, geo_zone, shipping_address } = user.profile;
        let geo_zone = geo_zone.map(|zone| zone.to_string());
        Self {
            id: uuid(user.id.0),
            email: user.email.as_str().to_owned(),
            password_hash: user.password_hash,
            profile: ProfileDoc { name, phone, geo_zone, shipping_address },
            created_at: date(user.created_at),
            updated_at: date(user.updated_at),
            version: number(user.version),
        }
    }

    fn user(self) -> StoreResult<User> {
        let ProfileDoc { name, phone, geo_zone, shipping_address } = self.profile;
        let geo_zone = geo_zone.as_deref().map(zone).transpose()?;
        Ok(User {
            id: id(self.id),
            email: Email::parse(&self.email).map_err(|error| damaged(format!("a user: {error}")))?,
            password_hash: self.password_hash,
            profile: Profile { name, phone, geo_zone, shipping_address },
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            version: version(self.version),
        })
    }
}
