//! What a table of objects shows.

/// Describes a printed column (`metav1.TableColumnDefinition`).
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// The OpenAPI type of the cells.
    pub ty: &'static str,
    /// The OpenAPI format of the cells; `name` marks the primary one.
    pub format: &'static str,
    /// What the column shows.
    pub description: &'static str,
    /// Zero is always shown, above only with `-o wide`.
    pub priority: i32,
}

impl Column {
    /// Describes a column of text that is always shown.
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            ty: "string",
            format: "",
            description,
            priority: 0,
        }
    }

    /// Describes a column of text that only `-o wide` shows.
    pub const fn wide(name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            ty: "string",
            format: "",
            description,
            priority: 1,
        }
    }

    /// Describes a column of integers that is always shown.
    pub const fn integer(name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            ty: "integer",
            format: "",
            description,
            priority: 0,
        }
    }

    /// Describes the column of the object's name.
    pub const fn name() -> Self {
        Self {
            name: "Name",
            ty: "string",
            format: "name",
            description: "The object's name, unique within its namespace and resource.",
            priority: 0,
        }
    }

    /// Describes the column of the object's age.
    pub const fn age() -> Self {
        Self::text("Age", "The time since the server created the object.")
    }
}
