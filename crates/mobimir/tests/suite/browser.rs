//! The storefront and the page of the API in a real browser.

use tempfile::TempDir;

use crate::support::{
    Process,
    browser::{Browser, DOWN, ENTER, Screen, Scripts, TAB, saying},
    shop::{PASSWORD, unique},
};

const ADDRESS: &str = "Невский проспект, 28, кв. 4";

fn shop(dir: &TempDir) -> Process {
    Process::start(&["demo", "--products", "300"], &dir.path().join("data"), &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_buys_with_a_phone_that_runs_no_scripts() {
    buys("phone", Screen::Phone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_buys_at_a_desk_without_scripts() {
    buys("desktop", Screen::Desktop).await;
}

async fn buys(journey: &str, screen: Screen) {
    let dir = TempDir::new().unwrap();
    let shop = shop(&dir);
    buys_at(&shop.host, journey, screen).await;
}

/// The whole way through a shop of 300 products, from the first page to the last.
pub(crate) async fn buys_at(host: &str, journey: &str, screen: Screen) {
    let mut browser = Browser::start(host, journey, screen, Scripts::Off).await;
    looks_around(&mut browser, screen).await;
    let goods = fills_the_cart(&mut browser).await;
    signs_up(&mut browser, &goods).await;
    orders(&mut browser, &goods).await;
    leaves(&mut browser).await;
}

/// What was put into the cart, and how many there were in which city.
struct Goods {
    name: String,
    city: String,
    available: u64,
}

async fn looks_around(browser: &mut Browser, screen: Screen) {
    browser.open("/").await;
    let everywhere = "Доставляем: Москва, Санкт-Петербург, Екатеринбург, Новосибирск.";
    browser.sees(&["Всё нужное", "Категории", "Популярное", "Войти", everywhere]).await;
    browser.look("home").await;

    browser.follow("Электроника").await;
    browser.sees(&["Фильтры и сортировка", "Дальше"]).await;
    assert_eq!(browser.text("h1").await, "Электроника");
    assert_eq!(browser.texts(".card").await.len(), 24);
    browser.look("category").await;

    match screen {
        // Above the goods the filter opens.
        Screen::Phone => {
            browser.click(".filters summary").await;
            browser.sees(&["Есть в городе"]).await;
            browser.look("filter").await;
            browser.fill("#f-min", "1 000").await;
            browser.fill("#f-max", "25000").await;
            browser.choose("f-zone", "Санкт-Петербург").await;
            browser.choose("f-sort", "Сначала дорогие").await;
            browser.follow("Показать").await;
        }
        // Beside them it is open, and the keyboard is enough.
        Screen::Desktop => {
            browser.press("#f-min", 1).await;
            browser.strike(&format!("1 000{TAB}25000{TAB}Санкт{TAB}{DOWN}{TAB}{ENTER}")).await;
        }
    }
    browser.sees(&["В наличии, Санкт-Петербург"]).await;
    let first = prices(browser).await;
    assert!(first.iter().all(|price| (1_000..=25_000).contains(price)), "{first:?}");
    assert!(first.is_sorted_by(|one, other| one >= other), "{first:?}");
    browser.look("filtered").await;

    browser.follow("Дальше").await;
    browser.sees(&["В начало", "В наличии, Санкт-Петербург"]).await;
    let second = prices(browser).await;
    assert!(!second.is_empty() && second[0] <= *first.last().unwrap(), "{first:?}, then {second:?}");
    browser.look("next-page").await;
    browser.follow("В начало").await;
    browser.sees(&["Электроника", "В наличии, Санкт-Петербург"]).await;

    browser.fill("#search", &format!("смартфоны{ENTER}")).await;
    browser.sees(&["Поиск: смартфоны"]).await;
    let found = browser.texts(".card h3").await;
    assert!(
        !found.is_empty() && found.iter().all(|name| name.to_lowercase().contains("смартфон")),
        "{found:?}"
    );
    browser.look("search").await;
}

/// The prices on the cards of a page, in roubles.
async fn prices(browser: &mut Browser) -> Vec<u64> {
    let shown = browser.texts(".card .price").await;
    shown.iter().map(|price| number(price)).collect()
}

/// The number in a text like `12 990 ₽` or `5 шт.`; `нет в наличии` is none.
fn number(text: &str) -> u64 {
    let whole = text.split(',').next().unwrap();
    whole.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

async fn fills_the_cart(browser: &mut Browser) -> Goods {
    let card = saying("h3", "Смартфон");
    let name = browser.text(&card).await;
    browser.click(&card).await;
    browser.sees(&["Наличие по городам", "Характеристики", "Похожие товары", &name]).await;
    let cities = browser.texts("[aria-labelledby=stock] th").await;
    let pieces: Vec<u64> =
        browser.texts("[aria-labelledby=stock] td").await.iter().map(|text| number(text)).collect();
    assert_eq!(cities, ["Москва", "Санкт-Петербург", "Екатеринбург", "Новосибирск"]);
    let richest = (0..cities.len()).max_by_key(|city| pieces[*city]).unwrap();
    assert!(pieces[richest] >= 3, "the demo has enough of its first smartphone: {pieces:?}");
    browser.look("product").await;

    let city = cities[richest].clone();
    browser.choose("zone", &city).await;
    browser.click(".purchase button").await;
    browser.sees(&["Товар в корзине", "Перейти в корзину"]).await;
    browser.look("added").await;
    browser.follow("Перейти в корзину").await;
    let place = format!("Город доставки: {city}");
    browser.sees(&["1 товар", "Оформить заказ", &name, &place, "Сначала попросим войти"]).await;

    browser.click("[value=more]").await;
    browser.sees(&["Количество изменено", "2 товара"]).await;
    browser.fill(".stepper input", &format!("3{ENTER}")).await;
    browser.sees(&["Количество изменено", "3 товара"]).await;
    browser.click("[value=less]").await;
    browser.sees(&["Количество изменено", "2 товара"]).await;
    assert_eq!(browser.value(".stepper input").await, "2");
    browser.look("cart").await;
    Goods { name, city, available: pieces[richest] }
}

async fn signs_up(browser: &mut Browser, goods: &Goods) {
    browser.follow("Оформить заказ").await;
    browser.sees(&["Вход", "Войдите или зарегистрируйтесь, чтобы продолжить"]).await;
    browser.look("login").await;
    browser.follow("Зарегистрируйтесь").await;
    browser.sees(&["Регистрация", "Товары из корзины останутся с вами"]).await;
    browser.look("signup").await;
    browser.fill("#email", &format!("newcomer-{}@example.ru", unique())).await;
    browser.fill("#password", PASSWORD).await;
    browser.follow("Зарегистрироваться").await;
    browser.sees(&["Оформление заказа", "корзина сохранилась", &goods.name]).await;

    browser.open("/cart").await;
    browser.sees(&["2 товара", &goods.name, "Кабинет"]).await;
    assert_eq!(browser.value(".stepper input").await, "2");
    assert!(!browser.words().await.contains("попросим войти"));
}

async fn orders(browser: &mut Browser, goods: &Goods) {
    browser.follow("Оформить заказ").await;
    browser.sees(&["Оформление заказа", "Ваш заказ", &goods.name]).await;
    assert_eq!(browser.text("#zone option:checked").await, goods.city);
    browser.look("checkout").await;
    browser.fill("#address", ADDRESS).await;
    browser.click("[value=sbp]").await;
    browser.follow("Заказать на").await;
    browser.sees(&["Спасибо! Заказ оформлен", "Подтверждён", ADDRESS, "По QR-коду через СБП"]).await;
    browser.sees(&[&goods.name, &goods.city, "Итого, 2 товара"]).await;
    browser.look("confirmation").await;
    let heading = browser.text("h1").await;

    browser.follow("Мои заказы").await;
    browser.sees(&["Подтверждён", "2 товара"]).await;
    let listed = browser.texts(".order-link").await;
    let id = heading.split_whitespace().nth(2).unwrap();
    assert!(listed.len() == 1 && listed[0].contains(id), "{listed:?} should be {heading}");
    browser.look("history").await;

    browser.click(".order-link").await;
    browser.sees(&["Где заказ сейчас", &goods.name]).await;
    browser.follow(&goods.name).await;
    browser.sees(&["Наличие по городам"]).await;
    let left = browser.text(&format!("{}/following-sibling::td", saying("th", &goods.city))).await;
    assert_eq!(number(&left), goods.available - 2, "{left}");
}

async fn leaves(browser: &mut Browser) {
    browser.follow("Кабинет").await;
    browser.sees(&["Личный кабинет", "Где вы вошли", "это устройство"]).await;
    browser.look("account").await;
    browser.follow("Выйти на этом устройстве").await;
    browser.sees(&["Вы вышли. Приходите ещё!", "Войти"]).await;
    browser.open("/orders").await;
    browser.sees(&["Войдите или зарегистрируйтесь, чтобы продолжить"]).await;
    assert_eq!(browser.path().await, "/login?next=%2Forders");
    browser.look("left").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_said_so() {
    let dir = TempDir::new().unwrap();
    let shop = shop(&dir);
    for (journey, screen) in [("phone-nothing", Screen::Phone), ("desktop-nothing", Screen::Desktop)] {
        let mut browser = Browser::start(&shop.host, journey, screen, Scripts::Off).await;
        browser.open("/").await;
        browser.fill("#search", &format!("жираф{ENTER}")).await;
        browser.sees(&["Поиск: жираф", "Ничего не нашлось"]).await;
        browser.look("no-results").await;
        browser.follow("Показать весь каталог").await;
        browser.sees(&["Каталог", "Дальше"]).await;

        browser.open("/catalog?price_min=много&price_max=100").await;
        browser.sees(&["Цена «от» не похожа на число", "Что ищем"]).await;
        browser.look("odd-filter").await;

        browser.open("/nowhere").await;
        browser.sees(&["Такой страницы нет", "На главную"]).await;
        browser.look_at_refusal("no-page", 404).await;

        browser.open("/cart").await;
        browser.sees(&["Пока пусто", "В каталог"]).await;
        browser.look("empty-cart").await;

        browser.open("/login").await;
        browser.fill("#email", "nobody@example.ru").await;
        browser.fill("#password", "a guess or two").await;
        browser.click("main button").await;
        browser.sees(&["Почта или пароль не подходят"]).await;
        assert_eq!(browser.value("#email").await, "nobody@example.ru");
        browser.look_at_refusal("bad-login", 422).await;

        browser.open("/signup").await;
        browser.fill("#email", &format!("visitor-{}@example.ru", unique())).await;
        browser.fill("#password", PASSWORD).await;
        browser.follow("Зарегистрироваться").await;
        browser.sees(&["Добро пожаловать!", "Личный кабинет"]).await;
        browser.open("/orders").await;
        browser.sees(&["Заказов пока нет"]).await;
        browser.look("no-orders").await;
    }
}

/// ORD-2, as an impatient shopper tries it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clicks_make_one_order() {
    let dir = TempDir::new().unwrap();
    let shop = shop(&dir);
    let mut browser = Browser::start(&shop.host, "twice", Screen::Desktop, Scripts::Off).await;
    browser.open("/signup").await;
    browser.fill("#email", &format!("impatient-{}@example.ru", unique())).await;
    browser.fill("#password", PASSWORD).await;
    browser.follow("Зарегистрироваться").await;
    browser.sees(&["Личный кабинет"]).await;

    goes_to_checkout(&mut browser).await;
    browser.press(".checkout .buy", 2).await;
    browser.sees(&["Заказ №", "Подтверждён"]).await;
    let placed = browser.path().await;
    browser.open("/cart").await;
    browser.sees(&["Пока пусто"]).await;
    browser.open("/orders").await;
    browser.sees(&["Мои заказы"]).await;
    assert_eq!(browser.texts(".order-link").await.len(), 1);

    // Both answers of one form sent twice, each in a tab of its own.
    goes_to_checkout(&mut browser).await;
    let form = browser.tabs().await;
    browser.run("document.getElementById('checkout').target = '_blank'", serde_json::json!([])).await;
    browser.click(".checkout .buy").await;
    browser.click(".checkout .buy").await;
    let mut answers = Vec::new();
    for tab in browser.tabs_beside(&form, 2).await {
        browser.switch_to(&tab).await;
        browser.sees(&["Заказ №", "Подтверждён"]).await;
        answers.push(browser.path().await);
    }
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], answers[1]);
    assert_ne!(answers[0], placed);
    browser.open("/orders").await;
    browser.sees(&["Мои заказы"]).await;
    assert_eq!(browser.texts(".order-link").await.len(), 2);
}

async fn goes_to_checkout(browser: &mut Browser) {
    browser.open("/catalog?q=чехол").await;
    browser.click(".card .buy").await;
    browser.sees(&["Товар в корзине"]).await;
    browser.open("/checkout").await;
    browser.fill("#address", ADDRESS).await;
    browser.look("checkout").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_can_be_tried_in_the_browser() {
    let dir = TempDir::new().unwrap();
    let shop = shop(&dir);
    for (journey, screen) in [("phone-docs", Screen::Phone), ("desktop-docs", Screen::Desktop)] {
        let mut browser = Browser::start(&shop.host, journey, screen, Scripts::On).await;
        browser.open("/docs").await;
        browser.sees(&["The shop's API", "/v1/orders", "/v1/products", "/v1/categories"]).await;
        assert!(browser.texts("details.call").await.len() > 20);
        browser.look("calls").await;

        let call =
            "//details[contains(@class, 'call')][.//*[@class='path'][normalize-space(.)='/v1/categories']]";
        browser.click(&format!("{call}/summary")).await;
        browser.click(&format!("{call}{}", saying("button", "Send"))).await;
        browser.sees(&["200 OK", "Смартфоны"]).await;
        assert!(browser.text(&format!("{call}//*[@class='answer']")).await.contains("200 OK"));
        browser.look("answer").await;
    }
}
