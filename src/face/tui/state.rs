//! The list of screens made into types: a [`Tab`] for each, and the [`State`] that holds all of them.

use super::context::Context;
pub use super::screens::{State, Tab};

/// A screen as a part of the state: answers and typed lines find their way back to it.
pub trait Placed: Sized + 'static {
    /// The tab under which the screen is shown.
    const TAB: Tab;

    /// The screen, and what all screens share.
    fn of(state: &mut State) -> (&mut Self, &mut Context);
}

/// Makes a list of screens, `module::Type => "title"`, the order of their digits, into types.
macro_rules! screens {
    ($($module:ident::$type:ident => $title:literal,)*) => {
        /// A screen, by its tab.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Tab {
            $(#[doc = $title] $type,)*
        }

        impl Tab {
            /// All of them; the first has digit 1.
            pub const ALL: [Self; [$($title),*].len()] = [$(Self::$type),*];

            /// How each is shown: name of the binding, and what it does.
            pub const SHOW: [(&'static str, &'static str); [$($title),*].len()] =
                [$((concat!("show-", $title), concat!("screen: ", $title))),*];

            /// The word on it; also the first half of the names of the screen's bindings.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$type => $title,)*
                }
            }

            /// The screen `by` tabs further, round and round.
            pub fn shifted(self, by: usize) -> Self {
                Self::ALL[(self as usize + by) % Self::ALL.len()]
            }

            /// What can be done on its screen.
            pub fn bindings(self) -> Vec<$crate::face::tui::action::Row> {
                match self {
                    $(Self::$type => <<$module::$type as $crate::face::tui::screen::Acts>::Act as $crate::face::tui::action::Listed>::BINDINGS.iter().map(|b| b.row).collect(),)*
                }
            }
        }

        /// Everything the workbench knows. [`super::update`] changes it, screens draw it.
        #[derive(Debug)]
        pub struct State {
            /// What all screens share.
            pub cx: $crate::face::tui::context::Context,
            $(#[doc = $title] pub $module: $module::$type,)*
        }

        impl State {
            /// A workbench that has just been opened.
            pub fn new(cx: $crate::face::tui::context::Context) -> Self {
                Self { cx, $($module: Default::default(),)* }
            }

            /// The screen of a tab.
            pub fn screen(&self, tab: Tab) -> &dyn $crate::face::tui::screen::Screen {
                match tab {
                    $(Tab::$type => &self.$module,)*
                }
            }

            /// A screen, to be changed, and what all screens share.
            pub fn split(&mut self, tab: Tab) -> (&mut dyn $crate::face::tui::screen::Screen, &mut $crate::face::tui::context::Context) {
                match tab {
                    $(Tab::$type => (&mut self.$module, &mut self.cx),)*
                }
            }
        }

        $(impl $crate::face::tui::state::Placed for $module::$type {
            const TAB: Tab = Tab::$type;

            fn of(state: &mut State) -> (&mut Self, &mut $crate::face::tui::context::Context) {
                (&mut state.$module, &mut state.cx)
            }
        })*
    };
}
pub(super) use screens;
