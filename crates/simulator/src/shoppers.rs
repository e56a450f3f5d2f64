//! Clients: they ask any instance, hang up, come back under the same key or another one, and write down what
//! they were answered.

mod cart_edits;
mod crossing;

use std::sync::{Arc, Mutex};

use mobimir_core::{
    checkout::{Asked, ShownLines},
    id::{OrderId, ProductId, UserId},
    money::Money,
    order::{Order, OrderStatus},
    ports::{Period, StoreError},
    product::{ProductEdit, StockChange},
    zone::Zone,
};
use mobimir_shop::{
    Caller, CartError, CatalogueError, LoginError, MoveOrderError, OrderRequest, PlaceOrderError,
    RefreshError, Shop,
};

use crate::{
    history::{Answer, Call, Customer, History, Item, Operation},
    instance::{Heard, Instance},
    world::{World, lock},
};

pub const PASSWORD: &str = "correct horse";

/// All that clients of one run share.
#[derive(Clone)]
pub struct Market {
    pub world: World,
    pub instances: Vec<Arc<Instance>>,
    pub history: History,
    pub products: Arc<Vec<ProductId>>,
    /// The customers, by number.
    pub users: Arc<Vec<(UserId, String)>>,
    numbers: Arc<Mutex<Numbers>>,
}

#[derive(Default)]
struct Numbers {
    sessions: usize,
    guests: usize,
    keys: usize,
    placed: Vec<String>,
    price: i64,
}

/// A session with all tokens that were ever given out for it.
struct Session {
    number: usize,
    tokens: Vec<(String, String)>,
}

pub struct Shopper {
    market: Market,
    client: usize,
    customer: Customer,
    session: Option<Session>,
    /// Requests that were sent before, for those who try again much later.
    sent: Vec<(String, Request)>,
}

#[derive(Clone)]
struct Request {
    lines: Option<Vec<(Item, u64)>>,
    shown: Option<Vec<(Item, u64, i64)>>,
}

pub fn zone() -> Zone {
    #[expect(clippy::expect_used, reason = "the name of a zone that every shop has")]
    Zone::parse("MSK").expect("MSK is a zone")
}

fn kopecks(price: Money) -> i64 {
    i64::try_from(price.kopecks()).unwrap_or(i64::MAX)
}

impl Market {
    pub fn new(
        world: World,
        instances: Vec<Arc<Instance>>,
        products: Vec<ProductId>,
        users: Vec<(UserId, String)>,
    ) -> Self {
        let numbers = Arc::new(Mutex::new(Numbers { price: 100, ..Numbers::default() }));
        let (history, products, users) = (History::default(), Arc::new(products), Arc::new(users));
        Self { world, instances, history, products, users, numbers }
    }

    pub(crate) fn any_instance(&self) -> Arc<Instance> {
        self.world.pick(&self.instances).clone()
    }

    pub(crate) fn guest_number(&self) -> usize {
        let mut numbers = lock(&self.numbers);
        numbers.guests += 1;
        numbers.guests
    }

    pub(crate) fn item(&self) -> Item {
        self.world.below(self.products.len() as u64) as usize
    }

    pub(crate) fn number_of(&self, product: ProductId) -> Item {
        self.products.iter().position(|id| *id == product).unwrap_or(usize::MAX)
    }

    pub fn lines_of(&self, order: &Order) -> Vec<(Item, u64, i64)> {
        let line = |line: &mobimir_core::order::OrderLine| {
            (self.number_of(line.product_id), line.quantity, kopecks(line.price))
        };
        let mut lines: Vec<_> = order.lines.iter().map(line).collect();
        lines.sort_unstable();
        lines
    }

    /// Asks, and writes down what was asked and answered.
    pub(crate) async fn ask(
        &self,
        client: usize,
        instance: &Instance,
        call: Call,
        answer: impl Future<Output = Answer>,
    ) -> Answer {
        let asked_ms = self.world.elapsed_ms();
        let answer = answer.await;
        self.record(client, instance.number, asked_ms, call, answer.clone());
        answer
    }

    fn record(&self, client: usize, instance: usize, asked_ms: i64, call: Call, answer: Answer) {
        self.world.note(event_of(&call, &answer), (client, instance, &call, &answer));
        let answered_ms = self.world.elapsed_ms();
        self.history.record(Operation { client, instance, asked_ms, answered_ms, call, answer });
    }

    async fn reprice(&self, client: usize, item: Item) {
        let (market, instance) = (self, self.any_instance());
        let price = {
            let mut numbers = lock(&market.numbers);
            numbers.price += 1;
            numbers.price
        };
        let product = market.products[item];
        let answer = async {
            let edit =
                ProductEdit { price: Some(Money::from_kopecks(i128::from(price))), ..ProductEdit::default() };
            match instance.serve(move |shop| async move { shop.edit_product(product, edit).await }).await {
                Heard::Answer(Ok(_)) => Answer::Done,
                Heard::Refused => Answer::Refused("nobody listens"),
                _ => Answer::Open,
            }
        };
        market.ask(client, &instance, Call::Reprice { item, price }, answer).await;
    }

    /// Adds to the cart of whoever the token belongs to.
    async fn add(
        &self,
        client: usize,
        customer: Customer,
        guest: Option<usize>,
        instance: &Instance,
        token: String,
    ) {
        let (item, units) = (self.item(), self.world.between(1, 3));
        let product = self.products[item];
        let call = Call::Add { customer, guest, item, units };
        let answer = async {
            let add = move |shop: Shop| async move {
                match shop.authenticate(&token).await? {
                    Some(caller) => shop.add_to_cart(&caller, product, units, None, None).await.map(|_| true),
                    None => Ok(false),
                }
            };
            match instance.serve(add).await {
                Heard::Answer(Ok(true)) => Answer::Done,
                Heard::Answer(Ok(false)) => Answer::Refused("unauthorized"),
                Heard::Answer(Err(CartError::Store(_))) | Heard::Nothing => Answer::Open,
                Heard::Answer(Err(_)) | Heard::Refused => Answer::Refused("no"),
            }
        };
        self.ask(client, instance, call, answer).await;
    }

    async fn present(
        &self,
        client: usize,
        instance: &Instance,
        session: usize,
        token: usize,
        access: String,
    ) {
        let answer = async {
            match instance.read(move |shop| async move { shop.authenticate(&access).await }).await {
                Heard::Answer(Ok(Some(_))) => Answer::Done,
                Heard::Answer(Ok(None)) => Answer::Refused("unauthorized"),
                _ => Answer::NotNow,
            }
        };
        self.ask(client, instance, Call::Present { session, token }, answer).await;
    }

    async fn think(&self) {
        match self.world.below(100) {
            0..=59 => self.world.sleep_ms(0, 300).await,
            60..=91 => self.world.sleep_ms(300, 5_000).await,
            _ => self.world.sleep_ms(20_000, 90_000).await,
        }
    }
}

/// What happened, in a few words.
pub fn event_of(call: &Call, answer: &Answer) -> &'static str {
    match (call, answer) {
        (_, Answer::Open) => "outcome open",
        (_, Answer::NotNow) => "not now",
        (Call::Add { .. }, Answer::Done) => "added to a cart",
        (Call::ReadCart { .. }, Answer::Cart(lines)) if lines.is_empty() => "empty cart read",
        (Call::ReadCart { .. }, _) => "cart read",
        (Call::SetLine { .. }, Answer::Done) => "line set",
        (Call::Clear { .. }, Answer::Done) => "cart cleared",
        (Call::Merge { .. }, Answer::Done) => "guest merged",
        (Call::Order { lines: None, .. }, Answer::Placed { replayed: false, .. }) => "cart ordered",
        (Call::Order { .. }, Answer::Placed { replayed: false, .. }) => "lines ordered",
        (Call::Order { .. }, Answer::Placed { replayed: true, .. }) => "order replayed",
        (Call::Order { .. }, Answer::Refused("out_of_stock")) => "order short of stock",
        (Call::Order { .. }, Answer::Refused("expired")) => "order expired",
        (Call::Order { .. }, Answer::Refused("cart_ordered")) => "cart ordered by another",
        (Call::Order { .. }, Answer::Refused("empty_cart")) => "nothing to order",
        (Call::Order { .. }, Answer::Refused("mismatch")) => "key of another request",
        (Call::Order { .. }, Answer::Refused("changed")) => "price has changed",
        (Call::Move { .. }, Answer::Done) => "order moved",
        (Call::Move { .. }, _) => "move refused",
        (Call::Present { .. }, Answer::Done) => "token accepted",
        (Call::Present { .. }, _) => "token refused",
        (Call::Refresh { .. }, Answer::Tokens(_)) => "token refreshed",
        (Call::Refresh { .. }, _) => "refresh refused",
        (Call::LogIn { .. }, _) => "logged in",
        (Call::ReadGuestCart { .. }, Answer::Cart(lines)) if lines.is_empty() => "visitor's cart is gone",
        (Call::ListAbandoned, Answer::Abandoned(listed)) if !listed.is_empty() => "abandoned carts listed",
        (Call::ListStatuses { .. }, _) => "history listed",
        (Call::LogOut { .. }, _) => "logged out",
        (Call::Restock { .. }, _) => "restocked",
        (Call::Reprice { .. }, _) => "price changed",
        (Call::ViewProduct { .. }, _) => "product viewed",
        _ => "asked",
    }
}

impl Shopper {
    pub fn new(market: Market, client: usize, customer: Customer) -> Self {
        Self { market, client, customer, session: None, sent: Vec::new() }
    }

    pub async fn shop(mut self, steps: usize) {
        for _ in 0..steps {
            self.market.think().await;
            if self.session.is_none() {
                self.log_in().await;
            }
            match self.market.world.below(100) {
                0..=23 => self.add().await,
                24..=27 => self.edit_cart().await,
                28..=37 => self.read_cart().await,
                38..=57 => self.order(None).await,
                58..=65 => self.order_lines().await,
                66..=71 => self.order_again().await,
                72..=79 => self.look_at_orders().await,
                80..=85 => self.present().await,
                86..=90 => self.refresh().await,
                91..=92 => self.use_old_refresh_token().await,
                93..=94 => self.log_out().await,
                _ => self.come_as_guest().await,
            }
        }
    }

    fn user(&self) -> UserId {
        self.market.users[self.customer].0
    }

    async fn log_in(&mut self) {
        let (instance, email) = (self.market.any_instance(), self.market.users[self.customer].1.clone());
        let asked_ms = self.market.world.elapsed_ms();
        let heard = instance
            .serve(move |shop| async move { shop.log_in(&email, PASSWORD, None, Default::default()).await })
            .await;
        if let Heard::Answer(Ok(logged_in)) = heard {
            let number = {
                let mut numbers = lock(&self.market.numbers);
                numbers.sessions += 1;
                numbers.sessions
            };
            let tokens = vec![(logged_in.token, logged_in.refresh_token.unwrap_or_default())];
            let call = Call::LogIn { session: number };
            self.market.record(self.client, instance.number, asked_ms, call, Answer::Tokens(0));
            self.session = Some(Session { number, tokens });
        }
    }

    /// Works as the holder of the newest token. Whether that was accepted is written down, too.
    async fn as_user<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        instance: &Instance,
        work: impl FnOnce(Shop, Caller) -> F + Send + 'static,
    ) -> Option<Heard<T>> {
        let session = self.session.as_ref()?;
        let (number, token) = (session.number, session.tokens.len() - 1);
        let access = session.tokens[token].0.clone();
        let asked_ms = self.market.world.elapsed_ms();
        let heard = instance
            .serve(move |shop| async move {
                match shop.authenticate(&access).await {
                    Ok(Some(caller)) => Ok(Some(work(shop, caller).await)),
                    Ok(None) => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .await;
        let present = Call::Present { session: number, token };
        let record = |answer| self.market.record(self.client, instance.number, asked_ms, present, answer);
        match heard {
            Heard::Answer(Ok(Some(done))) => {
                record(Answer::Done);
                Some(Heard::Answer(done))
            }
            Heard::Answer(Ok(None)) => {
                record(Answer::Refused("unauthorized"));
                self.session = None;
                None
            }
            Heard::Answer(Err(_)) => {
                record(Answer::NotNow);
                None
            }
            Heard::Refused => Some(Heard::Refused),
            Heard::Nothing => Some(Heard::Nothing),
        }
    }

    async fn add(&mut self) {
        let world = self.market.world.clone();
        let (item, units) = (self.market.item(), world.between(1, 3));
        let product = self.market.products[item];
        let key = world.permille(400).then(|| self.fresh_key());
        let asked_ms = world.elapsed_ms();
        let mut answer = Answer::Refused("unauthorized");
        let mut at = 0;
        for _ in 0..if key.is_some() { 3 } else { 1 } {
            let (instance, key) = (self.market.any_instance(), key.clone());
            at = instance.number;
            let heard = self
                .as_user(&instance, move |shop, caller| async move {
                    shop.add_to_cart(&caller, product, units, Some(zone()), key.as_deref()).await
                })
                .await;
            let heard = heard.map(|heard| match heard {
                Heard::Answer(Ok(_)) => Answer::Done,
                Heard::Answer(Err(CartError::Store(_))) | Heard::Nothing => Answer::Open,
                Heard::Answer(Err(_)) => Answer::Refused("no"),
                Heard::Refused => Answer::NotNow,
            });
            match heard {
                // A try before may still arrive.
                Some(Answer::Refused(_) | Answer::NotNow) | None if answer == Answer::Open => break,
                Some(heard) => answer = heard,
                None => break,
            }
            if answer != Answer::Open {
                break;
            }
            world.sleep_ms(10, 2_000).await;
        }
        if answer != Answer::Refused("unauthorized") {
            let call = Call::Add { customer: self.customer, guest: None, item, units };
            self.market.record(self.client, at, asked_ms, call, answer);
        }
    }

    async fn read_cart(&mut self) {
        let (instance, market) = (self.market.any_instance(), self.market.clone());
        let asked_ms = market.world.elapsed_ms();
        let heard = self.as_user(&instance, |shop, caller| async move { shop.cart(&caller).await }).await;
        let answer = match heard {
            Some(Heard::Answer(Ok(cart))) => Answer::Cart(
                cart.items.iter().map(|item| (market.number_of(item.product_id), item.quantity)).collect(),
            ),
            _ => return,
        };
        market.record(
            self.client,
            instance.number,
            asked_ms,
            Call::ReadCart { customer: self.customer },
            answer,
        );
    }

    fn fresh_key(&self) -> String {
        let mut numbers = lock(&self.market.numbers);
        numbers.keys += 1;
        format!("key {}", numbers.keys)
    }

    async fn order(&mut self, request: Option<Request>) {
        let world = self.market.world.clone();
        let request = request.unwrap_or(Request { lines: None, shown: None });
        let key = self.fresh_key();
        self.sent.push((key.clone(), request.clone()));
        if world.permille(250) {
            // Two at once, under one key or two, on any instances.
            let other = if world.permille(500) { key.clone() } else { self.fresh_key() };
            self.sent.push((other.clone(), request.clone()));
            let (first, second) =
                (self.place(key.clone(), request.clone()), self.place(other, request.clone()));
            let answers = futures_util::future::join(first, second).await;
            if answers.0.is_final() && answers.1.is_final() {
                return;
            }
        }
        for _ in 0..4 {
            if self.place(key.clone(), request.clone()).await.is_final() {
                return;
            }
            world.sleep_ms(20, 3_000).await;
            // Some never come back.
            if world.permille(250) {
                return;
            }
            // Some start anew instead.
            if world.permille(120) {
                let key = self.fresh_key();
                self.sent.push((key.clone(), request.clone()));
                self.place(key, request.clone()).await;
                return;
            }
        }
    }

    async fn order_lines(&mut self) {
        let world = self.market.world.clone();
        let mut lines = vec![(self.market.item(), world.between(1, 4))];
        if world.permille(500) {
            let other = (self.market.item(), world.between(1, 2));
            if other.0 != lines[0].0 {
                lines.push(other);
            }
        }
        lines.sort_unstable();
        let mut shown = None;
        if world.permille(600) {
            let ids: Vec<ProductId> = lines.iter().map(|(item, _)| self.market.products[*item]).collect();
            let read =
                self.market.any_instance().read(|shop| async move { shop.products_now(&ids).await }).await;
            if let Heard::Answer(Ok(products)) = read {
                let price =
                    |item: &Item| products.get(&self.market.products[*item]).map(|p| kopecks(p.price));
                let line = |(item, units): &(Item, u64)| Some((*item, *units, price(item)?));
                shown = lines.iter().map(line).collect();
            }
            world.sleep_ms(0, 1_000).await;
        }
        // Somebody may change a price at the very moment.
        let (item, market, client) = (lines[0].0, self.market.clone(), self.client);
        let reprices = shown.is_some() && world.permille(350) && item + 1 < market.products.len();
        let reprice = async {
            if reprices {
                world.sleep_ms(0, 25).await;
                market.reprice(client, item).await;
            }
        };
        let order = self.order(Some(Request { lines: Some(lines), shown }));
        futures_util::future::join(order, reprice).await;
    }

    /// Comes back much later, or under a key that was used for something else.
    async fn order_again(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let (key, request) = self.market.world.pick(&self.sent).clone();
        let request = if self.market.world.permille(300) {
            Request { lines: Some(vec![(self.market.item(), 9)]), shown: None }
        } else {
            request
        };
        self.place(key, request).await;
    }

    async fn place(&self, key: String, request: Request) -> Answer {
        self.place_at(&self.market.any_instance(), key, request).await
    }

    async fn place_at(&self, instance: &Instance, key: String, request: Request) -> Answer {
        let (market, user) = (&self.market, self.user());
        let products = market.products.clone();
        let wanted: Option<Vec<(ProductId, u64)>> = request
            .lines
            .as_ref()
            .map(|lines| lines.iter().map(|(item, units)| (products[*item], *units)).collect());
        let shown = request.shown.as_ref().map(|shown| {
            ShownLines::of(shown.iter().map(|(item, units, price)| {
                (products[*item], *units, Money::from_kopecks(i128::from(*price)))
            }))
        });
        let asked = Asked {
            geo_zone: zone(),
            items: wanted.as_deref(),
            shipping_address: None,
            payment_method: None,
        };
        let order = OrderRequest {
            geo_zone: zone(),
            hash: asked.hash(),
            items: wanted,
            shipping_address: None,
            payment_method: None,
            shown,
        };
        let of_key = key.clone();
        let call = Call::Order { customer: self.customer, key, lines: request.lines, shown: request.shown };
        let answer = async {
            let heard =
                instance.serve(move |shop| async move { shop.place_order(user, &of_key, order).await }).await;
            match heard {
                Heard::Answer(Ok(placed)) => Answer::Placed {
                    order: placed.order.id.to_string(),
                    lines: market.lines_of(&placed.order),
                    replayed: placed.replayed,
                },
                Heard::Answer(Err(error)) => refused(&error),
                Heard::Refused => Answer::NotNow,
                Heard::Nothing => Answer::Open,
            }
        };
        let answer = market.ask(self.client, instance, call, answer).await;
        if let Answer::Placed { order, .. } = &answer {
            let mut numbers = lock(&market.numbers);
            if !numbers.placed.contains(order) {
                numbers.placed.push(order.clone());
            }
        }
        answer
    }

    async fn look_at_orders(&mut self) {
        let (market, user) = (&self.market, self.user());
        let instance = market.any_instance();
        let placed = lock(&market.numbers).placed.clone();
        let Some(order) = (!placed.is_empty()).then(|| market.world.pick(&placed).clone()) else { return };
        let Ok(id) = order.parse().map(OrderId) else { return };
        match market.world.below(3) {
            0 => {
                let answer = async {
                    match instance.read(move |shop| async move { shop.order(id).await }).await {
                        Heard::Answer(Ok(found)) => Answer::Order(found.map(|order| market.lines_of(&order))),
                        _ => Answer::NotNow,
                    }
                };
                market.ask(self.client, &instance, Call::ReadOrder { order }, answer).await;
            }
            1 => {
                let answer = async {
                    let list = move |shop: Shop| async move {
                        shop.orders_of(user, Period::default(), None, 1_000).await
                    };
                    match instance.read(list).await {
                        Heard::Answer(Ok(page)) => {
                            Answer::Orders(page.items.iter().map(|order| order.id.to_string()).collect())
                        }
                        _ => Answer::NotNow,
                    }
                };
                market
                    .ask(self.client, &instance, Call::ListOrders { customer: self.customer }, answer)
                    .await;
            }
            _ => {
                let answer = async {
                    match instance.read(move |shop| async move { shop.order_history(id).await }).await {
                        Heard::Answer(Ok(history)) => Answer::History(
                            history
                                .into_iter()
                                .map(|change| (change.status.to_string(), change.operator))
                                .collect(),
                        ),
                        _ => Answer::NotNow,
                    }
                };
                market.ask(self.client, &instance, Call::ReadHistory { order }, answer).await;
            }
        }
    }

    /// Presents a token, also one that was replaced.
    async fn present(&mut self) {
        let market = &self.market;
        let Some(session) = &self.session else { return };
        for _ in 0..market.world.between(1, 3) {
            let token = market.world.below(session.tokens.len() as u64) as usize;
            let access = session.tokens[token].0.clone();
            market.present(self.client, &market.any_instance(), session.number, token, access).await;
        }
    }

    async fn refresh_with(&self, session: &Session, token: usize) -> (Answer, Option<(String, String)>) {
        self.refresh_at(&self.market.any_instance(), session, token).await
    }

    async fn refresh_at(
        &self,
        instance: &Instance,
        session: &Session,
        token: usize,
    ) -> (Answer, Option<(String, String)>) {
        let market = &self.market;
        let secret = session.tokens[token].1.clone();
        let next = session.tokens.len();
        let mut pair = None;
        let answer = async {
            match instance.serve(move |shop| async move { shop.refresh(&secret).await }).await {
                Heard::Answer(Ok(logged_in)) => {
                    pair = Some((logged_in.token, logged_in.refresh_token.unwrap_or_default()));
                    Answer::Tokens(next)
                }
                Heard::Answer(Err(RefreshError::Used)) => Answer::Refused("refresh_token_used"),
                Heard::Answer(Err(RefreshError::Unknown)) => Answer::Refused("bad_refresh_token"),
                Heard::Refused => Answer::NotNow,
                Heard::Answer(Err(RefreshError::Store(_))) | Heard::Nothing => Answer::Open,
            }
        };
        let call = Call::Refresh { session: session.number, token };
        let answer = market.ask(self.client, instance, call, answer).await;
        (answer, pair)
    }

    async fn refresh(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        let newest = session.tokens.len() - 1;
        if self.market.world.permille(250) {
            // An app with two windows: one of them works, and then none does.
            let both = (self.refresh_with(&session, newest), self.refresh_with(&session, newest));
            futures_util::future::join(both.0, both.1).await;
            return;
        }
        // Beside it the old token is still in use, on the same instance.
        let (market, instance) = (&self.market, self.market.any_instance());
        let (number, old) = (session.number, session.tokens[newest].0.clone());
        let others = async {
            for _ in 0..market.world.below(4) {
                market.world.sleep_ms(0, 40).await;
                market.present(self.client, &instance, number, newest, old.clone()).await;
            }
        };
        let refresh = self.refresh_at(&instance, &session, newest);
        let ((answer, pair), ()) = futures_util::future::join(refresh, others).await;
        match (answer, pair) {
            (Answer::Tokens(_), Some(pair)) => {
                session.tokens.push(pair);
                market.world.sleep_ms(1, 3).await;
                market.present(self.client, &instance, number, newest, old).await;
                self.session = Some(session);
                // A token that was just issued works everywhere at once.
                self.present().await;
            }
            (Answer::NotNow, _) => self.session = Some(session),
            // Whether the token works is not known any more: log in again.
            _ => {}
        }
    }

    /// As a thief would: the session has to end.
    async fn use_old_refresh_token(&mut self) {
        let Some(session) = self.session.take() else { return };
        if session.tokens.len() < 2 {
            self.session = Some(session);
            return;
        }
        let old = self.market.world.below(session.tokens.len() as u64 - 1) as usize;
        let (answer, pair) = self.refresh_with(&session, old).await;
        if pair.is_some() || answer == Answer::NotNow {
            self.session = Some(session);
            return;
        }
        self.market.world.sleep_ms(1_000, 5_000).await;
        self.session = Some(session);
        self.present().await;
        self.session = None;
    }

    async fn log_out(&mut self) {
        let instance = self.market.any_instance();
        let Some(session) = &self.session else { return };
        let (number, token) = (session.number, session.tokens.len() - 1);
        let access = session.tokens[token].0.clone();
        let asked_ms = self.market.world.elapsed_ms();
        // Beside it other requests of the same session are under way, on the same instance.
        let (market, client, beside) = (self.market.clone(), self.client, access.clone());
        let others = async {
            for _ in 0..market.world.below(4) {
                market.world.sleep_ms(0, 12).await;
                market.present(client, &instance, number, token, beside.clone()).await;
            }
        };
        let log_out = self.as_user(&instance, |shop, caller| async move { shop.log_out(&caller).await });
        let (heard, ()) = futures_util::future::join(log_out, others).await;
        let answer = match heard {
            Some(Heard::Answer(Ok(()))) => Answer::Done,
            Some(Heard::Answer(Err(_)) | Heard::Nothing) => Answer::Open,
            Some(Heard::Refused) | None => return,
        };
        self.market.record(self.client, instance.number, asked_ms, Call::LogOut { session: number }, answer);
        self.market.world.sleep_ms(1, 3).await;
        self.market.present(self.client, &instance, number, token, access).await;
        if self.market.world.permille(500) {
            self.market.world.sleep_ms(1_500, 4_000).await;
            self.present().await;
        }
        self.session = None;
    }

    /// Fills a cart as a guest, and logs in with it.
    async fn come_as_guest(&mut self) {
        let market = self.market.clone();
        let instance = market.any_instance();
        let started =
            instance.serve(|shop| async move { shop.start_guest_session(Default::default()).await }).await;
        let Heard::Answer(Ok(guest)) = started else { return };
        let number = {
            let mut numbers = lock(&market.numbers);
            numbers.guests += 1;
            numbers.guests
        };
        for _ in 0..market.world.between(1, 6) {
            self.add_as_guest(number, guest.token.clone()).await;
            if market.world.permille(150) {
                market.world.sleep_ms(61_000, 70_000).await;
            }
        }
        let late = market.world.permille(500);
        let (token, email) = (guest.token.clone(), market.users[self.customer].1.clone());
        let log_in = async {
            for _ in 0..3 {
                let (instance, token, email) = (market.any_instance(), token.clone(), email.clone());
                let call = Call::Merge { customer: self.customer, guest: number };
                let answer = async {
                    let log_in = move |shop: Shop| async move {
                        let guest = shop.authenticate(&token).await?;
                        let is_open = guest.is_some();
                        let logged_in = shop.log_in(&email, PASSWORD, guest, Default::default()).await;
                        logged_in.map(|_| is_open)
                    };
                    match instance.serve(log_in).await {
                        Heard::Answer(Ok(true)) => Answer::Done,
                        Heard::Answer(Ok(false)) => Answer::Refused("closed"),
                        Heard::Answer(Err(LoginError::Store(_) | LoginError::Stopped(_)))
                        | Heard::Nothing => Answer::Open,
                        Heard::Answer(Err(_)) => Answer::Refused("no"),
                        Heard::Refused => Answer::NotNow,
                    }
                };
                let answer = market.ask(self.client, &instance, call, answer).await;
                if !matches!(answer, Answer::Open | Answer::NotNow) {
                    return;
                }
                market.world.sleep_ms(50, 3_000).await;
            }
        };
        let add = async {
            if late {
                market.world.sleep_ms(0, 30).await;
                let instance = market.any_instance();
                let add = self.add_as_guest_at(&instance, number, guest.token.clone());
                let pauses = market.world.plan().faults.pauses && market.world.permille(200);
                let pause = async {
                    if pauses {
                        market.world.sleep_ms(0, 25).await;
                        instance.stand_still().await;
                    }
                };
                futures_util::future::join(add, pause).await;
            }
        };
        futures_util::future::join(log_in, add).await;
    }

    async fn add_as_guest(&self, guest: usize, token: String) {
        self.add_as_guest_at(&self.market.any_instance(), guest, token).await;
    }

    async fn add_as_guest_at(&self, instance: &Instance, guest: usize, token: String) {
        self.market.add(self.client, self.customer, Some(guest), instance, token).await;
    }
}

impl Answer {
    /// Whoever is told so does not ask again.
    pub fn is_final(&self) -> bool {
        matches!(self, Answer::Placed { .. } | Answer::Refused(_))
    }
}

fn refused(error: &PlaceOrderError) -> Answer {
    match error {
        PlaceOrderError::OutOfStock { .. } => Answer::Refused("out_of_stock"),
        PlaceOrderError::Expired => Answer::Refused("expired"),
        PlaceOrderError::CartOrdered { .. } => Answer::Refused("cart_ordered"),
        PlaceOrderError::EmptyCart { .. } => Answer::Refused("empty_cart"),
        PlaceOrderError::Mismatch => Answer::Refused("mismatch"),
        PlaceOrderError::Changed => Answer::Refused("changed"),
        PlaceOrderError::InProgress | PlaceOrderError::Busy => Answer::NotNow,
        PlaceOrderError::Store(_) | PlaceOrderError::Stopped(_) => Answer::Open,
        _ => Answer::Refused("invalid"),
    }
}

/// Somebody who runs the shop: moves orders, restocks, changes prices.
pub struct Operator {
    pub market: Market,
    pub client: usize,
}

impl Operator {
    pub async fn work(self, steps: usize) {
        for _ in 0..steps {
            self.market.think().await;
            match self.market.world.below(100) {
                0..=49 => self.move_order().await,
                50..=64 => self.restock().await,
                65..=79 => self.reprice().await,
                _ => self.view().await,
            }
        }
    }

    async fn move_order(&self) {
        let market = &self.market;
        let placed = lock(&market.numbers).placed.clone();
        if placed.is_empty() {
            return;
        }
        let order = market.world.pick(&placed).clone();
        let Ok(id) = order.parse().map(OrderId) else { return };
        let to = *market.world.pick(&[
            OrderStatus::Paid,
            OrderStatus::Paid,
            OrderStatus::Shipped,
            OrderStatus::Delivered,
            OrderStatus::Cancelled,
            OrderStatus::Cancelled,
        ]);
        let second = market.world.permille(300);
        let both = (self.move_to(id, to), async {
            if second {
                let other = *market.world.pick(&[OrderStatus::Cancelled, OrderStatus::Shipped, to]);
                self.move_to(id, other).await;
            }
        });
        futures_util::future::join(both.0, both.1).await;
    }

    async fn move_to(&self, id: OrderId, to: OrderStatus) {
        let (market, instance) = (&self.market, self.market.any_instance());
        let operator = {
            let mut numbers = lock(&market.numbers);
            numbers.keys += 1;
            format!("operator {}", numbers.keys)
        };
        let call = Call::Move { order: id.to_string(), to: to.as_str(), operator: operator.clone() };
        let answer = async {
            match instance.serve(move |shop| async move { shop.move_order(id, to, &operator).await }).await {
                Heard::Answer(Ok(_)) => Answer::Done,
                Heard::Answer(Err(MoveOrderError::BadTransition { .. })) => Answer::Refused("bad_transition"),
                Heard::Answer(Err(MoveOrderError::NoSuchOrder)) => Answer::Refused("not_found"),
                Heard::Refused => Answer::Refused("nobody listens"),
                Heard::Answer(Err(_)) | Heard::Nothing => Answer::Open,
            }
        };
        market.ask(self.client, &instance, call, answer).await;
    }

    async fn restock(&self) {
        let (market, instance, item) = (&self.market, self.market.any_instance(), self.market.item());
        let (product, delta) = (market.products[item], market.world.between(1, 6).cast_signed());
        let answer = async {
            let change = move |shop: Shop| async move {
                shop.change_stock(product, zone(), StockChange::Delta(delta)).await
            };
            match instance.serve(change).await {
                Heard::Answer(Ok(stock)) => {
                    Answer::Stock { available: stock.available, reserved: stock.reserved, sold: stock.sold }
                }
                Heard::Answer(Err(CatalogueError::Store(StoreError::Unavailable { .. })))
                | Heard::Refused => Answer::Refused("not now"),
                Heard::Answer(Err(_)) | Heard::Nothing => Answer::Open,
            }
        };
        market.ask(self.client, &instance, Call::Restock { item, delta }, answer).await;
    }

    /// Of one product only the operator changes the price, so that it can be told how old a price is.
    async fn reprice(&self) {
        let item = self.market.products.len() - 1;
        self.market.reprice(self.client, item).await;
        for _ in 0..self.market.world.below(3) {
            self.market.world.sleep_ms(500, 6_000).await;
            self.view_item(item).await;
        }
    }

    async fn view(&self) {
        self.view_item(self.market.item()).await;
    }

    async fn view_item(&self, item: Item) {
        let (market, instance) = (&self.market, self.market.any_instance());
        let product = market.products[item];
        let answer = async {
            match instance.read(move |shop| async move { shop.product(product).await }).await {
                Heard::Answer(Ok(Some(product))) => Answer::Price(kopecks(product.price)),
                Heard::Answer(Ok(None)) => Answer::Refused("not_found"),
                _ => Answer::NotNow,
            }
        };
        market.ask(self.client, &instance, Call::ViewProduct { item }, answer).await;
    }
}
