//! How things look on the wire.

use std::{collections::BTreeMap, sync::Arc};

use mobimir_core::{
    cart::Owner,
    order::{Order, StatusChange},
    page::Page,
    product::{Attribute, Product, ZoneStock},
    session::Session,
    user::User,
};
use mobimir_shop::{CartContents, CartStatus, LoggedIn};
use serde::{Serialize, Serializer, ser::SerializeMap};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::cursor;

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
    /// Give it as `after` for the next page; `null` at the end.
    pub(crate) next: Option<String>,
}

impl<T> List<T> {
    pub(crate) fn of<U, P: Serialize>(kind: &str, page: Page<U, P>, view: impl Fn(U) -> T) -> Self {
        let next = page.next.map(|position| cursor::encode(kind, &position));
        Self { items: page.items.into_iter().map(view).collect(), next }
    }

    pub(crate) fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

#[derive(ToSchema)]
#[schema(as = Product)]
#[expect(
    dead_code,
    reason = "the shape of ProductView for the OpenAPI text; the view itself borrows and is written by hand"
)]
pub(crate) struct ProductSchema {
    product_id: Uuid,
    name: String,
    category: String,
    #[schema(example = "12000.00")]
    price: String,
    #[schema(value_type = Object)]
    attributes: BTreeMap<String, String>,
    /// Available units by zone.
    #[schema(example = json!({ "MSK": 34, "SPB": 12 }))]
    stock_by_zone: BTreeMap<String, u64>,
    #[schema(example = "2025-11-05T12:34:56.000Z")]
    created_at: String,
    updated_at: String,
}

/// A product, written without copying it.
pub(crate) struct ProductView(pub(crate) Arc<Product>);

impl Serialize for ProductView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct View<'a> {
            product_id: &'a Uuid,
            name: &'a str,
            category: &'a str,
            price: mobimir_core::money::Money,
            attributes: &'a BTreeMap<String, Attribute>,
            stock_by_zone: AvailableByZone<'a>,
            created_at: mobimir_core::time::Timestamp,
            updated_at: mobimir_core::time::Timestamp,
        }
        let product = &self.0;
        let view = View {
            product_id: &product.id.0,
            name: &product.name,
            category: &product.category,
            price: product.price,
            attributes: &product.attributes,
            stock_by_zone: AvailableByZone(product),
            created_at: product.created_at,
            updated_at: product.updated_at,
        };
        view.serialize(serializer)
    }
}

/// `{"MSK": 34}`.
pub(crate) struct AvailableByZone<'a>(pub(crate) &'a Product);

impl Serialize for AvailableByZone<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.stock.len()))?;
        for (zone, stock) in &self.0.stock {
            map.serialize_entry(zone.as_str(), &stock.available)?;
        }
        map.end()
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct StockView {
    available: u64,
    reserved: u64,
    sold: u64,
}

impl From<ZoneStock> for StockView {
    fn from(stock: ZoneStock) -> Self {
        Self { available: stock.available, reserved: stock.reserved, sold: stock.sold }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Line)]
pub(crate) struct LineView {
    product_id: Uuid,
    name: String,
    category: String,
    #[schema(example = "12000.00")]
    price: String,
    quantity: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Cart)]
pub(crate) struct CartView {
    cart_id: Uuid,
    /// Whose it is, when an operator asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<Uuid>,
    /// `active` or `abandoned`
    status: &'static str,
    geo_zone: Option<String>,
    items: Vec<LineView>,
    #[schema(example = "24000.00")]
    amount: String,
    updated_at: Option<String>,
    expires_at: Option<String>,
}

impl CartView {
    /// As its owner sees it.
    pub(crate) fn own(cart: CartContents) -> Self {
        let items = cart.items.into_iter().map(|item| LineView {
            product_id: item.product_id.0,
            name: item.name,
            category: item.category,
            price: item.price.to_string(),
            quantity: item.quantity,
        });
        Self {
            cart_id: cart.owner.uuid(),
            user_id: None,
            session_id: None,
            status: match cart.status {
                CartStatus::Active => "active",
                CartStatus::Abandoned => "abandoned",
            },
            geo_zone: cart.geo_zone.map(|zone| zone.to_string()),
            items: items.collect(),
            amount: cart.amount.to_string(),
            updated_at: cart.updated_at.map(|at| at.to_string()),
            expires_at: cart.expires_at.map(|at| at.to_string()),
        }
    }

    /// As an operator sees it.
    pub(crate) fn of_somebody(cart: CartContents) -> Self {
        let owner = cart.owner;
        let mut view = Self::own(cart);
        match owner {
            Owner::User(user) => view.user_id = Some(user.0),
            Owner::Guest(session) => view.session_id = Some(session.0),
        }
        view
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Order)]
pub(crate) struct OrderView {
    order_id: Uuid,
    user_id: Uuid,
    /// `pending`, `confirmed`, `paid`, `shipped`, `delivered` or `cancelled`
    status: &'static str,
    #[schema(example = "MSK")]
    geo_zone: String,
    items: Vec<LineView>,
    #[schema(example = "24000.00")]
    total_amount: String,
    shipping_address: Option<String>,
    payment_method: Option<String>,
    created_at: String,
    updated_at: String,
}

impl From<Order> for OrderView {
    fn from(order: Order) -> Self {
        let total_amount = order.total().to_string();
        let items = order.lines.into_iter().map(|line| LineView {
            product_id: line.product_id.0,
            name: line.name,
            category: line.category,
            price: line.price.to_string(),
            quantity: line.quantity,
        });
        Self {
            order_id: order.id.0,
            user_id: order.user_id.0,
            status: order.status.as_str(),
            geo_zone: order.geo_zone.to_string(),
            items: items.collect(),
            total_amount,
            shipping_address: order.shipping_address,
            payment_method: order.payment_method,
            created_at: order.created_at.to_string(),
            updated_at: order.updated_at.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct StatusChangeView {
    status: &'static str,
    at: String,
    /// `null` when the shop moved it.
    operator: Option<String>,
}

impl From<StatusChange> for StatusChangeView {
    fn from(change: StatusChange) -> Self {
        Self { status: change.status.as_str(), at: change.at.to_string(), operator: change.operator }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct GuestSessionView {
    session_id: Uuid,
    token: String,
    expires_at: String,
}

impl From<LoggedIn> for GuestSessionView {
    fn from(session: LoggedIn) -> Self {
        Self {
            session_id: session.session_id.0,
            token: session.token,
            expires_at: session.expires_at.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct UserSessionView {
    session_id: Uuid,
    user_id: Option<Uuid>,
    token: String,
    refresh_token: Option<String>,
    expires_at: String,
}

impl From<LoggedIn> for UserSessionView {
    fn from(session: LoggedIn) -> Self {
        Self {
            session_id: session.session_id.0,
            user_id: session.user_id.map(|user| user.0),
            token: session.token,
            refresh_token: session.refresh_token,
            expires_at: session.expires_at.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionView {
    session_id: Uuid,
    /// The session that asks.
    current: bool,
    ip_address: Option<String>,
    user_agent: Option<String>,
    device: Option<String>,
    created_at: String,
    last_active: String,
    expires_at: String,
}

impl SessionView {
    pub(crate) fn of(session: Session, current: Uuid) -> Self {
        Self {
            session_id: session.id.0,
            current: session.id.0 == current,
            ip_address: session.ip_address.map(|ip| ip.to_string()),
            user_agent: session.user_agent,
            device: session.device,
            created_at: session.created_at.to_string(),
            last_active: session.last_active.to_string(),
            expires_at: session.expires_at.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Profile)]
pub(crate) struct ProfileView {
    user_id: Uuid,
    email: String,
    name: Option<String>,
    phone: Option<String>,
    geo_zone: Option<String>,
    shipping_address: Option<String>,
    created_at: String,
    updated_at: String,
}

impl From<User> for ProfileView {
    fn from(user: User) -> Self {
        Self {
            user_id: user.id.0,
            email: user.email.to_string(),
            name: user.profile.name,
            phone: user.profile.phone,
            geo_zone: user.profile.geo_zone.map(|zone| zone.to_string()),
            shipping_address: user.profile.shipping_address,
            created_at: user.created_at.to_string(),
            updated_at: user.updated_at.to_string(),
        }
    }
}
