//! A user with profile.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::leaves::{At, ZoneCode};
use mobimir_core::{
    id::UserId,
    ports::{StoreError, StoreResult},
    time::Version,
    user::{Email, Profile, User},
};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(id: UserId) -> Key {
    KeyBuilder::new(Table::User).uuid(id.0).end()
}

#[derive(Encode, Decode)]
struct UserRecord<'a> {
    #[b(0)]
    email: &'a str,
    #[b(1)]
    password_hash: &'a str,
    #[b(2)]
    name: Option<&'a str>,
    #[b(3)]
    phone: Option<&'a str>,
    #[n(4)]
    geo_zone: Option<ZoneCode>,
    #[b(5)]
    shipping_address: Option<&'a str>,
    #[n(6)]
    created_at: At,
    #[n(7)]
    updated_at: At,
    #[n(8)]
    version: u64,
}

pub(crate) fn encode(user: &User) -> Slice {
    super::encode(&UserRecord {
        email: user.email.as_str(),
        password_hash: &user.password_hash,
        name: user.profile.name.as_deref(),
        phone: user.profile.phone.as_deref(),
        geo_zone: user.profile.geo_zone.map(ZoneCode),
        shipping_address: user.profile.shipping_address.as_deref(),
        created_at: At(user.created_at),
        updated_at: At(user.updated_at),
        version: user.version.0,
    })
}

pub(crate) fn decode(id: UserId, bytes: &[u8]) -> StoreResult<User> {
    let record: UserRecord<'_> = super::decode("user", bytes)?;
    let email = Email::parse(record.email).map_err(|error| StoreError::Corrupt {
        what: format!("expected user {id} to have an email address"),
        source: Some(error.into()),
    })?;
    Ok(User {
        id,
        email,
        password_hash: record.password_hash.into(),
        profile: Profile {
            name: record.name.map(Into::into),
            phone: record.phone.map(Into::into),
            geo_zone: record.geo_zone.map(|zone| zone.0),
            shipping_address: record.shipping_address.map(Into::into),
        },
        created_at: record.created_at.0,
        updated_at: record.updated_at.0,
        version: Version(record.version),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary;

    proptest! {
        #[test]
        fn a_user_comes_back_whole(user in arbitrary::user()) {
            prop_assert_eq!(super::decode(user.id, &super::encode(&user)).unwrap(), user);
        }
    }
}
