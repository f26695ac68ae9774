"""The handlers of the routes, a module for each part of the API."""
