"""Ask models: every call is made here, limited, repeated, stored and counted."""
