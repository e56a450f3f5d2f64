//! The numbered promises, in the words of the console.

use mobimir_core::invariant::{Invariant, InvariantCounters};

use super::wording;

pub(super) struct Promise {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    checks: u64,
    violations: u64,
}

pub(super) fn all(counters: &InvariantCounters) -> Vec<Promise> {
    let promise = |invariant: Invariant| Promise {
        name: invariant.name(),
        text: in_russian(invariant),
        checks: counters.checks(invariant),
        violations: counters.violations(invariant),
    };
    Invariant::ALL.into_iter().map(promise).collect()
}

impl Promise {
    pub(super) fn is_broken(&self) -> bool {
        self.violations > 0
    }

    pub(super) fn was_checked(&self) -> bool {
        self.checks > 0
    }

    pub(super) fn checks(&self) -> String {
        wording::count(self.checks)
    }

    pub(super) fn violations(&self) -> String {
        wording::count(self.violations)
    }
}

fn in_russian(invariant: Invariant) -> &'static str {
    match invariant {
        Invariant::Stk1 => "по каждому товару и зоне: было + поступило = доступно + в резерве + продано",
        Invariant::Stk2 => "доступный остаток не бывает отрицательным",
        Invariant::Ord1 => "принятый заказ находится по номеру, в истории покупателя и в таблице дня",
        Invariant::Ord2 => "один ключ идемпотентности — не больше одного заказа",
        Invariant::Ord3 => "статус идёт только по схеме, и каждый шаг стоит в истории ровно один раз",
        Invariant::Crt1 => "одновременные изменения корзины учитываются все",
        Invariant::Crt2 => "слияние при входе ничего не теряет и применяется один раз",
        Invariant::Crt3 => "корзина не живёт дольше своего срока, гостевая — дольше сессии",
        Invariant::Crt4 => {
            "положенное в корзину заказывается не больше одного раза, сколько бы ни было серверов и повторов"
        }
        Invariant::Ses1 => "истёкшая или отозванная сессия не принимается",
        Invariant::Ses2 => "токен обновления работает один раз; повтор закрывает всю семью",
        Invariant::Ses3 => {
            "новый токен сразу действует на всех серверах, отозванный перестаёт за session_cache_s"
        }
        Invariant::Mig1 => "ни одна подтверждённая запись не теряется ни в одной фазе переезда",
        Invariant::Mig2 => "чтение переходит в новую базу, только когда в ней сверено всё записанное",
        Invariant::Mig3 => "никогда не решают две базы сразу",
        Invariant::Rd1 => "чтение не старше своего срока, и каждый видит то, что записал сам",
    }
}
