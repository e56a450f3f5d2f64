//! From the cart to an order.
//!
//! The form carries an idempotency key that was made when it was rendered: a double click, a reload or a lost
//! answer all mean the same order. It also carries a digest of the lines and prices that were shown. The shop
//! compares it with the lines and prices that it is about to sell, so that nobody orders what they have not
//! seen.

use std::time::Duration;

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use mobimir_core::{
    checkout::{ADDRESS_CHARS_MAX, Asked, IDEMPOTENCY_KEY_CHARS_MAX, ShownLines},
    id::{self, OrderId, UserId},
    reading,
    zone::Zone,
};
use mobimir_shop::{Caller, CartContents, OrderRequest, PlaceOrderError, Placed, Shop};
use serde::Deserialize;

use super::{
    cart::{self, Line},
    catalogue::{Choice, zone_choices},
    fault::{Fault, Fields, Parameters, or_fault},
    notice::Notice,
    page::{self, Frame},
    visit::Visit,
    wording,
};
use crate::state::AppState;

/// How often, and how long apart, an order that is being placed elsewhere is asked for again.
const TURNS_MAX: usize = 50;
const TURN_WAIT_MS: u64 = 150;

const PAYMENT_METHODS: [(&str, &str); 3] =
    [("card", "Картой при получении"), ("sbp", "По QR-коду через СБП"), ("cash", "Наличными курьеру")];

#[derive(Template)]
#[template(path = "storefront/checkout.html")]
struct CheckoutPage {
    frame: Frame,
    form: CheckoutForm,
    zones: Vec<Choice>,
    payment_methods: Vec<Choice>,
    lines: Vec<Line>,
    amount: String,
    count: String,
    any_short: bool,
    address_max: usize,
    trouble: Option<&'static str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CheckoutForm {
    zone: String,
    address: String,
    payment_method: String,
    key: String,
    seen: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Start {
    zone: String,
}

pub(super) async fn show(
    State(state): State<AppState>,
    visit: Visit,
    Parameters(start): Parameters<Start>,
) -> Response {
    let done = begin(&state, &visit, &start).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn place(
    State(state): State<AppState>,
    visit: Visit,
    Fields(form): Fields<CheckoutForm>,
) -> Response {
    let done = order(&state, &visit, form).await;
    or_fault(&state, &visit, done).await
}

/// How a payment method is called in words.
pub(super) fn payment_words(code: &str) -> &str {
    PAYMENT_METHODS.iter().find(|(known, _)| *known == code).map_or(code, |(_, words)| words)
}

async fn begin(state: &AppState, visit: &Visit, start: &Start) -> Result<Response, Fault> {
    let shop = &state.shop;
    let (caller, user_id) = visit.user(shop).await?;
    let contents = shop.cart(&caller).await?;
    let profile = shop.user(user_id).await?.map(|user| user.profile).unwrap_or_default();
    let zone = known_zone(shop, &start.zone).or(contents.geo_zone).or(profile.geo_zone);
    let zone = zone.or(shop.settings().zones.first().copied());
    let form = CheckoutForm {
        zone: zone.map(|zone| zone.to_string()).unwrap_or_default(),
        address: profile.shipping_address.unwrap_or_default(),
        payment_method: PAYMENT_METHODS[0].0.to_owned(),
        ..CheckoutForm::default()
    };
    render(state, visit, &caller, form, contents, None).await
}

/// The form, always under a new key. With what kept it from being accepted, if it has been sent.
async fn render(
    state: &AppState,
    visit: &Visit,
    caller: &Caller,
    mut form: CheckoutForm,
    contents: CartContents,
    trouble: Option<(StatusCode, &'static str)>,
) -> Result<Response, Fault> {
    let shop = &state.shop;
    if contents.items.is_empty() {
        return Ok(page::see_other(visit, "/cart", Some(Notice::EmptyCart)));
    }
    let zone = known_zone(shop, &form.zone);
    let lines = cart::lines(shop, &contents, zone).await?;
    form.key = id::fresh(shop.now()).to_string();
    form.seen = shown(&contents).to_string();
    let mut frame = Frame::of(shop, visit, Some(caller), "Оформление заказа — Мобильный мир").await;
    frame.path = super::links::with_query("/checkout", &[("zone", &form.zone)]);
    let method = |(code, words): &(&str, &str)| Choice {
        value: (*code).to_owned(),
        label: (*words).to_owned(),
        chosen: *code == form.payment_method,
    };
    let view = CheckoutPage {
        frame,
        zones: zone_choices(&shop.settings().zones, zone),
        payment_methods: PAYMENT_METHODS.iter().map(method).collect(),
        any_short: lines.iter().any(|line| line.short.is_some()),
        lines,
        amount: wording::price(contents.amount),
        count: wording::goods(contents.items.iter().fold(0, |sum, item| sum.saturating_add(item.quantity))),
        address_max: ADDRESS_CHARS_MAX,
        trouble: trouble.map(|(_, text)| text),
        form,
    };
    Ok(page::respond(visit, trouble.map_or(StatusCode::OK, |(status, _)| status), &view))
}

async fn order(state: &AppState, visit: &Visit, form: CheckoutForm) -> Result<Response, Fault> {
    let shop = &state.shop;
    let (caller, user_id) = visit.user(shop).await?;
    if !(1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&form.key.chars().count()) {
        return Err(Fault::BadForm);
    }
    let refuse = async |status, trouble| {
        let contents = shop.cart(&caller).await?;
        render(state, visit, &caller, form.clone(), contents, Some((status, trouble))).await
    };
    let request = match form.request(shop) {
        Ok(request) => request,
        Err(trouble) => return refuse(StatusCode::UNPROCESSABLE_ENTITY, trouble).await,
    };
    let order_id = OrderId::of(user_id, &form.key);
    match place_once(shop, user_id, &form.key, request).await {
        Ok(placed) => {
            Ok(page::see_other(visit, &format!("/orders/{}", placed.order.id), Some(Notice::Ordered)))
        }
        // Ordered meanwhile, in another window.
        Err(PlaceOrderError::CartOrdered { by, .. }) => {
            Ok(page::see_other(visit, &format!("/orders/{by}"), None))
        }
        Err(PlaceOrderError::EmptyCart { .. }) => {
            Ok(page::see_other(visit, "/cart", Some(Notice::EmptyCart)))
        }
        Err(PlaceOrderError::Changed) => {
            let trouble = "Пока вы заполняли форму, корзина или цены изменились. Проверьте заказ и подтвердите ещё раз.";
            refuse(StatusCode::CONFLICT, trouble).await
        }
        Err(PlaceOrderError::OutOfStock { .. }) => {
            let trouble = "Кто-то оказался быстрее: не всего хватает. Ничего не списано — поправьте отмеченные строки или выберите другой город.";
            refuse(StatusCode::CONFLICT, trouble).await
        }
        Err(PlaceOrderError::Expired) => {
            let trouble =
                "Заказ не успел оформиться, ничего не списано. Подтвердите его, пожалуйста, ещё раз.";
            refuse(StatusCode::CONFLICT, trouble).await
        }
        // The form was sent before with something else in it.
        Err(PlaceOrderError::Mismatch) => match shop.order_now(order_id).await? {
            Some(order) => {
                Ok(page::see_other(visit, &format!("/orders/{}", order.id), Some(Notice::Ordered)))
            }
            None => refuse(StatusCode::CONFLICT, "Проверьте заказ и подтвердите ещё раз.").await,
        },
        Err(PlaceOrderError::UnknownProduct(gone)) => {
            shop.remove_from_cart(&caller, gone).await?;
            refuse(StatusCode::CONFLICT, "Одного из товаров больше нет в продаже, мы убрали его из корзины.")
                .await
        }
        Err(PlaceOrderError::TooManyLines(_)) => {
            let trouble =
                "В одном заказе может быть не больше 200 разных товаров. Разделите его, пожалуйста.";
            refuse(StatusCode::UNPROCESSABLE_ENTITY, trouble).await
        }
        Err(PlaceOrderError::TooMany { .. }) => {
            let trouble = "Одного товара в заказе может быть не больше миллиона штук.";
            refuse(StatusCode::UNPROCESSABLE_ENTITY, trouble).await
        }
        Err(PlaceOrderError::UnknownZone(_)) => {
            refuse(StatusCode::UNPROCESSABLE_ENTITY, "Выберите город из списка.").await
        }
        Err(PlaceOrderError::Store(error)) => Err(error.into()),
        Err(error @ (PlaceOrderError::InProgress | PlaceOrderError::Busy | PlaceOrderError::Stopped(_))) => {
            Err(Fault::Busy(error.to_string()))
        }
    }
}

/// Places the order, waiting out a first click that is still under way. A browser that hangs up stops nothing.
async fn place_once(
    shop: &Shop,
    user: UserId,
    key: &str,
    request: OrderRequest,
) -> Result<Placed, PlaceOrderError> {
    let (shop, key) = (shop.clone(), key.to_owned());
    let work = async move {
        for _ in 0..TURNS_MAX {
            match shop.place_order(user, &key, request.clone()).await {
                Err(PlaceOrderError::InProgress) => {
                    tokio::time::sleep(Duration::from_millis(TURN_WAIT_MS)).await
                }
                done => return done,
            }
        }
        Err(PlaceOrderError::InProgress)
    };
    tokio::spawn(reading::under(reading::current(), work)).await.unwrap_or_else(|error| {
        tracing::error!(%error, "placing an order failed");
        Err(PlaceOrderError::InProgress)
    })
}

impl CheckoutForm {
    fn request(&self, shop: &Shop) -> Result<OrderRequest, &'static str> {
        let geo_zone = known_zone(shop, &self.zone).ok_or("Выберите город из списка.")?;
        let address = self.address.trim();
        if address.is_empty() {
            return Err("Напишите, куда привезти заказ.");
        }
        if address.chars().count() > ADDRESS_CHARS_MAX || address.contains('\0') {
            return Err("Адрес слишком длинный: уместите его в 1000 знаков.");
        }
        if !PAYMENT_METHODS.iter().any(|(code, _)| *code == self.payment_method) {
            return Err("Выберите способ оплаты.");
        }
        let asked = Asked {
            geo_zone,
            items: None,
            shipping_address: Some(address),
            payment_method: Some(&self.payment_method),
        };
        Ok(OrderRequest {
            geo_zone,
            items: None,
            shipping_address: Some(address.to_owned()),
            payment_method: Some(self.payment_method.clone()),
            hash: asked.hash(),
            // Without a digest nothing was shown, which is never what is in the cart.
            shown: Some(ShownLines::parse(&self.seen).unwrap_or_else(|| ShownLines::of([]))),
        })
    }
}

fn known_zone(shop: &Shop, code: &str) -> Option<Zone> {
    Zone::parse(code).ok().filter(|zone| shop.settings().knows_zone(*zone))
}

fn shown(contents: &CartContents) -> ShownLines {
    ShownLines::of(contents.items.iter().map(|item| (item.product_id, item.quantity, item.price)))
}
