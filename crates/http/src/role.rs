//! Which part of the shop an instance answers for.

use std::str::FromStr;

use serde::Deserialize;

/// `All` is the whole shop with its pages; each of the others is one service of a shop that is several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Products,
    Carts,
    Orders,
    #[default]
    All,
}

impl Role {
    /// As they are written in a configuration.
    pub const NAMES: [&'static str; 4] = ["products", "carts", "orders", "all"];
    /// The services that a shop can be divided into.
    pub(crate) const SERVICES: [Self; 3] = [Self::Products, Self::Carts, Self::Orders];

    pub fn name(self) -> &'static str {
        match self {
            Self::Products => "products",
            Self::Carts => "carts",
            Self::Orders => "orders",
            Self::All => "all",
        }
    }

    /// Whether an instance of this role does what is the other's.
    pub fn does(self, other: Self) -> bool {
        self == Self::All || self == other
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles = [Self::Products, Self::Carts, Self::Orders, Self::All].into_iter();
        let role = roles.find(|role| role.name() == text);
        role.ok_or_else(|| format!("expected one of {}, got {text:?}", Self::NAMES.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_role() {
        for name in Role::NAMES {
            assert_eq!(name.parse().map(Role::name), Ok(name));
        }
        assert!("shop".parse::<Role>().unwrap_err().contains("expected one of products, carts"));
    }

    #[test]
    fn all_does_what_each_does() {
        for service in Role::SERVICES {
            assert!(Role::All.does(service) && service.does(service) && !service.does(Role::All));
        }
        assert!(!Role::Products.does(Role::Orders));
    }
}
