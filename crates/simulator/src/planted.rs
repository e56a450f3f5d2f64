//! Faults that can be put back, in the shop, in the stores or in a migration. Each has to be found.

use mobimir_migrate::environment as migration;
use mobimir_shop::faults::Planted;

macro_rules! planted {
    (
        stores { $($store:ident $store_name:literal),+ $(,)? }
        shop { $($shop:ident $shop_name:literal),+ $(,)? }
        migration { $($migration:ident $migration_name:literal),+ $(,)? }
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PlantedFault {
            $($store,)+
            Shop(Planted),
            Migration(migration::Planted),
        }

        impl PlantedFault {
            pub const ALL: [PlantedFault; [$($store_name,)+ $($shop_name,)+ $($migration_name,)+].len()] = [
                $(Self::$store,)+
                $(Self::Shop(Planted::$shop),)+
                $(Self::Migration(migration::Planted::$migration),)+
            ];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$store => $store_name,)+
                    Self::Shop(planted) => match planted {
                        $(Planted::$shop => $shop_name,)+
                    },
                    Self::Migration(planted) => match planted {
                        $(migration::Planted::$migration => $migration_name,)+
                    },
                }
            }
        }
    };
}

planted! {
    stores {
        AcknowledgedByPrimaryAlone "acknowledged-by-primary-alone",
        StockReadFromSecondary "stock-read-from-secondary",
        BudgetIgnored "budget-ignored",
        CheckoutUpdatedUnconditionally "checkout-updated-unconditionally",
        ClaimSetUnconditionally "claim-set-unconditionally",
        WrittenToOneReplica "written-to-one-replica",
        ReadFromOneReplica "read-from-one-replica",
        DecisionsRace "decisions-race",
        PackingRenamesParts "packing-renames-parts",
        PackingForgetsCovered "packing-forgets-covered",
        PackingRemovesUnseenRows "packing-removes-unseen-rows",
        PackedUnconditionally "packed-unconditionally",
        PacksByOwnClock "packs-by-own-clock",
        SameChangeCountsTwice "same-change-counts-twice",
        CartWriteAssumed "cart-write-assumed",
        NoNoteBeforeListing "no-note-before-listing",
        MovedUnconditionally "moved-unconditionally",
        TokenUsedWithoutDecision "token-used-without-decision",
        SessionUpdatedUnconditionally "session-updated-unconditionally",
        CopiedWithoutVersion "copied-without-version",
        MarkOfLaterWriteRemoved "mark-of-later-write-removed",
        LocalFailsOver "local-fails-over",
        NothingOwed "nothing-owed",
        WholeBeforeOwedIsBrought "whole-before-owed-is-brought",
        DecidedInSurvivingDc "decided-in-surviving-dc",
        SessionsNotWrittenAgain "sessions-not-written-again",
        OutboxInMemoryOnly "outbox-in-memory-only",
        OutboxEntryRemovedBeforeCopy "outbox-entry-removed-before-copy",
        CopyAssumed "copy-assumed",
        TouchNotListed "touch-not-listed",
        TouchedCartListed "touched-cart-listed",
        CartListedOnceOnly "cart-listed-once-only",
        CartOutlivesItsTtl "cart-outlives-its-ttl",
    }
    shop {
        CartOrderedWithoutClaim "cart-ordered-without-claim",
        EarlierOrderNotTaken "earlier-order-not-taken",
        ClaimTakenFromOpenCheckout "claim-taken-from-open-checkout",
        CartKeptAfterOrder "cart-kept-after-order",
        RememberedSessionRefuses "remembered-session-refuses",
        RememberedSessionGoesBack "remembered-session-goes-back",
        SessionsRememberedTooLong "sessions-remembered-too-long",
        DeadlinesByOwnClock "deadlines-by-own-clock",
        AbortWithoutWinning "abort-without-winning",
        AbortBeforeDeadline "abort-before-deadline",
        OrderWrittenUndecided "order-written-undecided",
        HoldsKeptAfterAbort "holds-kept-after-abort",
        RequestNotCompared "request-not-compared",
        GuestKeptOpen "guest-kept-open",
        NoLastCheckOfMerge "no-last-check-of-merge",
        LateGuestNotFollowed "late-guest-not-followed",
        MergeRenamesChanges "merge-renames-changes",
        SetLeavesEarlier "set-leaves-earlier",
        ClearedAgainLater "cleared-again-later",
        CancelledWithoutDecision "cancelled-without-decision",
        PricesReadAfterComparison "prices-read-after-comparison",
        ReusedTokenEndsNothing "reused-token-ends-nothing",
        SoldBeforeCommit "sold-before-commit",
        UnknownTakenForDone "unknown-taken-for-done",
    }
    migration {
        UnconfirmedPhaseLeft "unconfirmed-phase-left",
        UnknownKeepsPermit "unknown-keeps-permit",
        MarkRemovedAfterFailedCopy "mark-removed-after-failed-copy",
        WritesNotMarked "writes-not-marked",
        TargetNotMirrored "target-not-mirrored",
    }
}

impl PlantedFault {
    pub fn in_shop(self) -> Option<Planted> {
        match self {
            Self::Shop(planted) => Some(planted),
            _ => None,
        }
    }

    pub fn in_migration(self) -> Option<migration::Planted> {
        match self {
            Self::Migration(planted) => Some(planted),
            _ => None,
        }
    }
}
