//! Which category a stock code belongs in. The file has none, so the words of the name decide.

pub(crate) const SERVICES: &str = "Services";
const REST: &str = "Gifts";

/// Codes of what is charged but does not lie on a shelf: postage, fees, discounts, samples, corrections by hand.
const SERVICE_CODES: &[&str] = &[
    "POST",
    "DOT",
    "C2",
    "C3",
    "M",
    "D",
    "S",
    "B",
    "CRUK",
    "AMAZONFEE",
    "BANK CHARGES",
    "ADJUST",
    "ADJUST2",
];
const VOUCHER_PREFIX: &str = "GIFT_";

/// The first category that knows a word of the name takes it; hence the special ones before the general.
const WORDS: &[(&str, &[&str])] = &[
    ("Christmas", &["CHRISTMAS", "XMAS", "ADVENT", "SANTA", "REINDEER", "SNOWMAN", "BAUBLE", "SNOWFLAKE"]),
    ("Easter", &["EASTER", "EGG", "CHICK", "BUNNY", "RABBIT", "HEN"]),
    (
        "Jewellery",
        &[
            "NECKLACE", "BRACELET", "EARRINGS", "EARRING", "RING", "BROOCH", "PENDANT", "BANGLE", "CHARM",
            "DIAMANTE", "HAIR", "TIARA", "KEYRING",
        ],
    ),
    ("Bags and purses", &["BAG", "BAGS", "PURSE", "HANDBAG", "WALLET", "SHOPPER", "RUCKSACK", "SATCHEL"]),
    (
        "Candles and lights",
        &["CANDLE", "CANDLES", "LIGHT", "LIGHTS", "LANTERN", "LAMP", "LAMPSHADE", "INCENSE", "CANDLESTICK"],
    ),
    ("Party", &["PARTY", "BUNTING", "GARLAND", "BALLOON", "BALLOONS", "STREAMER", "CONFETTI", "BIRTHDAY"]),
    ("Gift wrap", &["WRAP", "RIBBON", "RIBBONS", "TISSUE", "TAGS"]),
    (
        "Kitchen and table",
        &[
            "MUG", "CUP", "CUPS", "TEA", "TEAPOT", "COFFEE", "BOWL", "PLATE", "PLATES", "CAKE", "CAKES",
            "BAKING", "CUTLERY", "KITCHEN", "JAR", "JAM", "TRAY", "LUNCH", "DINNER", "NAPKIN", "NAPKINS",
            "APRON", "DISH", "SPOON", "SPOONS", "PAN", "GLASS", "TUMBLER", "DOILY", "DOILIES", "COASTER",
            "COASTERS", "PLACEMAT", "SALT", "TEACUP", "BREAD", "RECIPE", "FOOD", "EGGCUP", "PANTRY", "OVEN",
            "MOULD", "MOULDS", "CUPCAKE",
        ],
    ),
    (
        "Stationery",
        &[
            "CARD",
            "CARDS",
            "NOTEBOOK",
            "PEN",
            "PENS",
            "PENCIL",
            "PENCILS",
            "PAPER",
            "STICKER",
            "STICKERS",
            "BOOK",
            "TAPE",
            "ENVELOPE",
            "CALENDAR",
            "JOURNAL",
            "ERASER",
            "ERASERS",
            "STAMP",
            "LETTER",
            "STATIONERY",
            "CHALK",
            "CALCULATOR",
            "RULER",
        ],
    ),
    (
        "Toys and games",
        &[
            "TOY",
            "TOYS",
            "JIGSAW",
            "PUZZLE",
            "PUZZLES",
            "GAME",
            "GAMES",
            "DOLL",
            "DOLLY",
            "PLAYHOUSE",
            "SPACEBOY",
            "CHILDS",
            "CHILDRENS",
            "CHILDREN",
            "BABY",
            "MAGIC",
            "FELTCRAFT",
            "SKIPPING",
            "DOMINOES",
            "BLOCK",
            "BLOCKS",
            "KIT",
            "TEDDY",
            "SKITTLES",
            "RACING",
        ],
    ),
    (
        "Garden",
        &[
            "GARDEN",
            "GARDENERS",
            "PLANT",
            "PLANTER",
            "FLOWERPOT",
            "PARASOL",
            "BIRD",
            "BIRDHOUSE",
            "WATERING",
            "HERB",
            "POT",
            "POTS",
            "SEEDS",
            "TRELLIS",
            "WINDMILL",
            "BUCKET",
            "GNOME",
        ],
    ),
    (
        "Textiles",
        &[
            "CUSHION", "CUSHIONS", "THROW", "QUILT", "BLANKET", "TOWEL", "TOWELS", "CURTAIN", "DOORMAT",
            "SCARF", "SHAWL", "SLIPPERS", "SOCKS", "GLOVES", "WARMER", "RUG", "BOTTLE", "UMBRELLA", "COSY",
        ],
    ),
    (
        "Storage",
        &[
            "BOX", "BOXES", "TIN", "TINS", "BASKET", "BASKETS", "DRAWER", "DRAWERS", "CABINET", "STORAGE",
            "HOOK", "HOOKS", "RACK", "HANGER", "SHELF", "CASE", "CASES", "TRINKET", "BIN",
        ],
    ),
    ("Bathroom", &["BATH", "BATHROOM", "SOAP", "SPONGE", "TOILET", "TOOTHBRUSH", "WASHBAG"]),
    (
        "Home decoration",
        &[
            "CLOCK",
            "MIRROR",
            "FRAME",
            "SIGN",
            "WALL",
            "DECORATION",
            "WREATH",
            "DOORSTOP",
            "KNOB",
            "VASE",
            "ORNAMENT",
            "CHALKBOARD",
            "BLACKBOARD",
            "MAGNET",
            "MAGNETS",
            "TILE",
            "HANGING",
            "PHOTO",
            "PICTURE",
            "ART",
            "HEART",
            "HEARTS",
            "FLOWER",
            "FLOWERS",
            "CHAIR",
            "TABLE",
            "STOOL",
            "DOOR",
            "HOLDER",
            "METAL",
            "CERAMIC",
            "STAND",
        ],
    ),
];

/// The category of a stock code (in upper case) by its name.
pub(crate) fn of(stock_code: &str, name: &str) -> &'static str {
    if is_service(stock_code) {
        return SERVICES;
    }
    let name = name.to_uppercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).collect();
    let known = |(_, known): &&(&str, &[&str])| known.iter().any(|word| words.contains(word));
    WORDS.iter().find(known).map_or(REST, |(category, _)| category)
}

pub(crate) fn is_service(stock_code: &str) -> bool {
    SERVICE_CODES.contains(&stock_code) || stock_code.starts_with(VOUCHER_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_codes_decide() {
        for (code, name, category) in [
            ("POST", "Postage", SERVICES),
            ("GIFT_0001_20", "Dotcomgiftshop gift voucher £20.00", SERVICES),
            ("85123A", "White hanging heart t-light holder", "Candles and lights"),
            ("22086", "Paper chain kit 50's christmas", "Christmas"),
            ("20725", "Lunch bag red retrospot", "Bags and purses"),
            ("22423", "Regency cakestand 3 tier", REST),
            ("1", "", REST),
        ] {
            assert_eq!(of(code, name), category, "{name}");
        }
    }
}
