//! Who has an email address. This is what makes addresses unique.

use fjall::Slice;
use mobimir_core::{id::UserId, ports::StoreResult, user::Email};
use uuid::Uuid;

use crate::{
    engine::{Key, KeyBuilder, Table},
    error::damaged,
};

pub(crate) fn key(email: &Email) -> Key {
    KeyBuilder::new(Table::UserByEmail).bytes(email.as_str().as_bytes()).end()
}

pub(crate) fn encode(id: UserId) -> Slice {
    Slice::from(*id.as_bytes())
}

pub(crate) fn decode(bytes: &[u8]) -> StoreResult<UserId> {
    let id = bytes.try_into().map_err(|_| damaged("expected a user's id under an email address"))?;
    Ok(UserId(Uuid::from_bytes(id)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn an_address_leads_to_its_user(a in arbitrary::user(), b in arbitrary::user()) {
            prop_assert_eq!(key(&a.email) == key(&b.email), a.email == b.email);
            prop_assert_eq!(decode(&encode(a.id)).unwrap(), a.id);
        }
    }
}
