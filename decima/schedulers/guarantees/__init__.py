"""Guarantees for any scheduler: least and largest shares of tenants, and no job much later than fair sharing."""
